"""
Refusal ring: the last refused and dropped messages, with the text that says why.

Equal refusals within a second are one entry with a count, so that a client that floods the node does not push
everything else out of the ring.
"""

from collections import deque
from collections.abc import Callable, Iterator

MAX_REFUSALS = 5000
MERGE_SECONDS = 1.0  # equal refusals so soon after the first are counted in its entry
MAX_TEXT_CHARS, MAX_NAME_CHARS = 400, 300
MAX_IDS, MAX_ID_CHARS = 8, 100  # of the newest messages that an entry counts


class Refusal:
    """
    A refused or dropped message. `count` has how many equal ones came within a second.

    `number` rises by one for each entry. `time` and `last` are seconds since 1970. `outcome` is `refused`,
    `no-route` or `dropped`; `rule` is the path of the policy rule that decided, "" if none did.
    `id` is that of the first message, `later_ids` has those of the newest others.
    """

    __slots__ = (
        "code",
        "connector",
        "count",
        "from_",
        "id",
        "last",
        "later_ids",
        "number",
        "outcome",
        "peer",
        "reason",
        "rule",
        "session",
        "text",
        "time",
        "to",
        "type",
        "user",
    )

    def __init__(self, number: int, time: float, code: int, reason: str, text: str) -> None:
        self.number = number
        self.time = self.last = time
        self.code = code
        self.reason = reason
        self.text = text[:MAX_TEXT_CHARS]
        self.count = 1
        self.outcome = "refused"
        self.rule = self.session = self.user = self.peer = self.connector = ""
        self.type = self.from_ = self.to = ""
        self.id: int | str = ""
        self.later_ids: deque[int | str] | None = None

    def is_of(self, id: str) -> bool:
        """
        Is a message with this id, as text, among those that the entry counts?
        """
        others = (str(other) == id[:MAX_ID_CHARS] for other in self.later_ids or ())
        return str(self.id) == id or any(others)

    def count_equal(self, now: float, id: int | str) -> None:
        self.count += 1
        self.last = now
        if id != "":
            if self.later_ids is None:
                self.later_ids = deque(maxlen=MAX_IDS)
            self.later_ids.append(id if isinstance(id, int) else id[:MAX_ID_CHARS])


class RefusalRing:
    """
    The last MAX_REFUSALS refusals, oldest first. `wall` gives seconds since 1970.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.last_number = 0
        self._entries: deque[Refusal] = deque(maxlen=MAX_REFUSALS)
        self._recent: dict[tuple[str, int, str, str], Refusal] = {}  # the newest entry of each kind
        self._wall = wall

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Refusal]:
        return iter(self._entries)

    def __reversed__(self) -> Iterator[Refusal]:
        return reversed(self._entries)

    def add(
        self, who: str, code: int, reason: str, text: str, to: str = "", id: int | str = ""
    ) -> Refusal | None:
        """
        Notes a refusal of the message `id` to the session or peer `who`. None: it is counted in the entry of
        an equal one; else the new entry, whose other fields the caller fills in.
        """
        now = self._wall()
        key = who, code, reason, to[:MAX_NAME_CHARS]
        equal = self._recent.get(key)
        if equal is not None and 0 <= now - equal.time < MERGE_SECONDS:  # else the clock may be set back
            equal.count_equal(now, id)
            return None
        if len(self._recent) >= MAX_REFUSALS:
            self._recent.clear()
        self.last_number += 1
        made = self._recent[key] = Refusal(self.last_number, now, code, reason, text)
        made.to = key[3]
        self._entries.append(made)
        return made


def name(text: object) -> str:
    """
    A name from a message, cut to what an entry keeps.
    """
    return str(text)[:MAX_NAME_CHARS]
