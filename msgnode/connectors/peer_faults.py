"""
Faults of clients below the level of messages: counted, because a log line each could fill the log.
"""

from collections import Counter
from typing import Any

from twisted.logger import Logger

# The beginnings of Autobahn's log lines about a bad peer, and the label that each is counted with.
_SAID = {
    "failing WebSocket opening handshake": "handshake",
    "Auto ping/pong: received non-pending pong": "pong",
    "SSL error: ": "tls",
}
_FAILED = "failing WebSocket connection"  # sometimes logged twice; the connection counts it
_DROPPED = "dropping connection to peer"
_BY_CODE = {1002: "frame", 1007: "text", 1009: "too_long"}


def fault_of(code: int) -> str:
    """
    Returns the label of a fault, by the close code of its connection.
    """
    return _BY_CODE.get(code, "frame")


class PeerLog:
    """
    A logger for Autobahn's connections: it counts lines about bad peers, and logs all others.
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
            if fields.get("abort"):  # otherwise its handshake failed, which is counted
                self._faults["silent"] += 1
            return True
        for beginning, what in _SAID.items():
            if format.startswith(beginning):
                self._faults[what] += 1
                return True
        return False
