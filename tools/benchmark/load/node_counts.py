"""
What a node says of itself: which data plane it runs, and how many messages that has carried by flow.
"""

import json
import urllib.request
from typing import Any

CARRIED = "msgnode_messages_by_flow_total"
RECEIVED = "msgnode_messages_in_total"
PATIENCE = 10  # seconds


class NodeCounts:
    """
    The counts of the node of a job from now on; of another server there are none.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._port = job.get("admin", 0)
        self._plane = str(json.loads(self._read("live"))["data_plane"]) if self._port else ""
        self._before = self._counts()

    def so_far(self) -> dict[str, Any]:
        """
        `plane`, and `by_flow`: the share of messages that were carried by flow.
        """
        if not self._port:
            return {}
        carried, received = (now - before for now, before in zip(self._counts(), self._before, strict=True))
        return {"plane": self._plane, "by_flow": carried / received if received else 0.0}

    def _counts(self) -> tuple[float, float]:
        if not self._port:
            return 0.0, 0.0
        lines = self._read("metrics").decode().splitlines()
        samples = [line.rsplit(" ", 1) for line in lines if line and line[0] != "#"]
        carried, received = (
            sum(float(value) for name, value in samples if name.partition("{")[0] == wanted)
            for wanted in (CARRIED, RECEIVED)
        )
        return carried, received

    def _read(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=PATIENCE) as answer:
            return bytes(answer.read())
