"""
The cluster as operators see it.
"""

from typing import Any, Protocol


class ClusterStatus(Protocol):
    """
    The state of this node's cluster.
    """

    @property
    def why_degraded(self) -> str:
        """
        The reason why other members are not reached; empty if there is none.
        """

    def report(self) -> dict[str, Any]:
        """
        The state as `/live` has it.
        """
