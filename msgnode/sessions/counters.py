"""
Counters of messages and sessions, exposed at /metrics.
"""

from collections import Counter, defaultdict


class RegistryCounts:
    """
    Counters of the embedded registries: the entries they have, and the requests they refused, by status.
    """

    def __init__(self) -> None:
        self.entries = self.bytes = 0
        self.refused: Counter[int] = Counter()


class Counters:
    """
    Plain integers, which every component that handles a message increments.
    """

    def __init__(self) -> None:
        self.received = self.received_bytes = 0
        self.received_by: defaultdict[str, int] = defaultdict(int)  # those received, by connector
        self.sent = self.sent_bytes = 0
        self.unreadable = 0  # not JSON, not UTF-8, no sender to answer
        self.no_route = self.waited = self.stale = self.overflowed = self.shed = 0
        self.turned_away = 0  # messages that were not queued, because the disk is full
        self.unread_answers = 0  # times reading from a client paused until it had read its answers
        self.held_back = 0  # times a client had to wait, because too much was to be sent to it at once
        self.unlogged = 0  # messages whose senders asked for no log entry
        self.unread = 0  # messages that were queued, and could not be read from disk
        self.echoes = 0  # messages not sent back to their own sender, because they carry `via`
        self.refused: Counter[tuple[int, str]] = Counter()  # messages, by code and reason
        self.websocket_faults: Counter[str] = Counter()  # WebSocket protocol errors of clients, by kind
        self.sessions: dict[str, int] = {}  # session events, by name
        self.resource_answers: Counter[tuple[str, str]] = Counter()  # REST, by method and class of status
        self.event_streams: Counter[str] = Counter()  # event streams, by what happened to them
        self.handed_over = [0] * 65  # messages by the bit length of the microseconds they took

    def receive(self, size: int, connector: str) -> None:
        """
        Counts a message of so many bytes from a client; Ingress.receive does the same in its own lines.
        """
        self.received += 1
        self.received_bytes += size
        self.received_by[connector] += 1

    def refuse(self, code: int, reason: str) -> None:
        self.refused[code, reason] += 1
