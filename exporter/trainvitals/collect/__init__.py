"""Metric families: sources, and the contract that keeps one from hurting another."""
