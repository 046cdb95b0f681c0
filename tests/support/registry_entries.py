"""
A domain registry with one entry, for what operators look up.
"""

from typing import Any

from msgnode.protocol.errors import Rejected

ROOM = "comm://example.org/room"


class FakeRegistry:
    """
    The registry of one entry, which does not answer about what is broken.
    """

    async def find(self, resource: str, deadline: float | None = None) -> dict[str, Any]:
        if "broken" in resource:
            raise Rejected("no answer", 504, "back-end")
        if resource == ROOM:
            return {"code": 200, "value": {ROOM: {"status": "live"}}}
        return {"code": 404, "description": "Not Found"}
