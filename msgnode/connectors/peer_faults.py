"""
What clients do wrong below messages, counted: a stranger could fill the log with it.
"""

from collections import Counter
from typing import Any

from twisted.logger import Logger

# What Autobahn says of a bad peer, by how it begins, and what that is counted as.
_SAID = {
    "failing WebSocket opening handshake": "handshake",
    "Auto ping/pong: received non-pending pong": "pong",
    "SSL error: ": "tls",
}
_FAILED = "failing WebSocket connection"  # said twice of some; the connection counts it
_DROPPED = "dropping connection to peer"
_BY_CODE = {1002: "frame", 1007: "text", 1009: "too_long"}


def fault_of(code: int) -> str:
    """
    What was wrong with what came, by the code that its connection is closed with.
    """
    return _BY_CODE.get(code, "frame")


class PeerLog:
    """
    The log of Autobahn's connections: what is said of bad peers is counted, all else is logged.
    """

    def __init__(self, faults: Counter[str]) -> None:
        self._faults = faults
        self._log = Logger(namespace="autobahn")

    def trace(self, format: str, **fields: Any) -> None:
        pass

    debug = trace

    def info(self, format: str, **fields: Any) -> None:
        if not self._is_counted(format, fields):
            self._log.info(format, **fields)

    def warn(self, format: str, **fields: Any) -> None:
        if not self._is_counted(format, fields):
            self._log.warn(format, **fields)

    def error(self, format: str, **fields: Any) -> None:
        if not self._is_counted(format, fields):
            self._log.error(format, **fields)

    def _is_counted(self, format: str, fields: dict[str, Any]) -> bool:
        if format.startswith(_FAILED):
            return True
        if format.startswith(_DROPPED):
            if fields.get("abort"):  # else its handshake was bad, which is counted
                self._faults["silent"] += 1
            return True
        for beginning, what in _SAID.items():
            if format.startswith(beginning):
                self._faults[what] += 1
                return True
        return False
