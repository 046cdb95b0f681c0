"""
What the node counts as messages and sessions go by; /metrics reads it.
"""

from collections import Counter


class RegistryCounts:
    """
    Counters of the embedded registries: what they hold, and what they refused, by status.
    """

    def __init__(self) -> None:
        self.entries = self.bytes = 0
        self.refused: Counter[int] = Counter()


class Counters:
    """
    Plain numbers, which whoever carries a message adds to.
    """

    def __init__(self) -> None:
        self.received = self.received_bytes = 0
        self.sent = self.sent_bytes = 0
        self.unreadable = 0  # not JSON, not UTF-8, nobody to answer
        self.no_route = self.waited = self.stale = self.overflowed = self.shed = 0
        self.turned_away = 0  # messages that were not kept, because there is no room on disk
        self.unread_answers = 0  # times a client was not read from until it had read what it was answered
        self.held_back = 0  # times a client had to wait, because too much was to leave for it at once
        self.unlogged = 0  # messages whose senders wanted nothing written down
        self.unread = 0  # messages that were kept, and could not be read again
        self.echoes = 0  # own messages not sent back, because they carry `via`
        self.refused: Counter[tuple[int, str]] = Counter()  # messages, by code and reason
        self.websocket_faults: Counter[str] = Counter()  # what clients did wrong below messages
        self.sessions: dict[str, int] = {}  # events in the life of sessions
        self.handed_over = [0] * 65  # messages by the bit length of the microseconds they took

    def refuse(self, code: int, reason: str) -> None:
        self.refused[code, reason] += 1
