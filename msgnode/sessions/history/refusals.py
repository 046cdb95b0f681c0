"""
Refusal ring: the last refused and dropped messages, with the text that says why.

Equal refusals within a second are one entry with a count, and a session or peer has a share of the ring, so
that a client that floods the node does not push everything else out of it.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from msgnode.protocol.peer_address import peer_host

MAX_REFUSALS, MAX_OF_ONE = 5000, 500  # in all, and of one session or of one IP address without a session
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
        "sender",
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
        self.sender = ""  # the session or IP address whose share it counts to
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
    The last MAX_REFUSALS refusals, oldest first, and of each sender the last MAX_OF_ONE of them. `wall` gives
    seconds since 1970.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.last_number = 0
        self._entries: OrderedDict[int, Refusal] = OrderedDict()  # by number
        self._of_sender: dict[str, list[int]] = {}  # the numbers of the entries of each, oldest first
        self._recent: dict[tuple[str, int, str, str], Refusal] = {}  # the newest entry of each kind
        self._wall = wall

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Refusal]:
        return iter(self._entries.values())

    def __reversed__(self) -> Iterator[Refusal]:
        return reversed(self._entries.values())

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
        made.sender = who if "://" in who else peer_host(who) or who
        self._keep(made)
        return made

    def _keep(self, made: Refusal) -> None:
        """
        Adds the entry; the oldest of its sender, or of all, makes room for it.
        """
        own = self._of_sender.setdefault(made.sender, [])
        if len(own) >= MAX_OF_ONE:
            del self._entries[own.pop(0)]
        elif len(self._entries) >= MAX_REFUSALS:
            _, oldest = self._entries.popitem(last=False)
            others = self._of_sender[oldest.sender]
            del others[0]
            if not others and oldest.sender != made.sender:
                del self._of_sender[oldest.sender]
        own.append(made.number)
        self._entries[made.number] = made


def name(text: object) -> str:
    """
    A name from a message, cut to what an entry keeps.
    """
    return str(text)[:MAX_NAME_CHARS]
