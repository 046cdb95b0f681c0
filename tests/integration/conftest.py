"""
The one Spark of a test run, for integration tests too.
"""

from tests.mining.conftest import spark

__all__ = ["spark"]
