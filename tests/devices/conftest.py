"""Fixtures of the tests of devices."""

from tests.fixtures.nvml.driver import driver, stub

__all__ = ["driver", "stub"]
