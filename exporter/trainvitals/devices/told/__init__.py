"""Vendors whose tool tells of all cards at once: a file for each, with what is asked and how the answer is read."""
