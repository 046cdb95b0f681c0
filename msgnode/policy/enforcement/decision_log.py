"""
The decision log: decisions counted by rule, and logged as one line each.

Its format is a public contract, docs/policy.md, "Decision log". Refusals are always logged, and a share of
the permits; never a body, never a token.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256

import msgspec
from msgspec import Struct, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.storage.json_lines import MAX_HELD, Batches, LineLog, cut, cut_id
from msgnode.transport.data_plane import NO_DATA_PLANE, DataPlane, PermitLine

VERSION = 1
MAX_RECENT = 100  # refusals kept in memory, for the managers of the policies
BEFORE_TIME = b'{"v":%d,"time":' % VERSION
_encode = msgspec.json.Encoder().encode


class RuleCounter(Struct, gc=False):
    """
    The number of decisions of a rule at one point, and the time of the last (nanoseconds since 1970).
    """

    point: str
    effect: str
    rule: str
    hits: int = 0
    last: int = 0


class DecisionLine(Struct, gc=False, omit_defaults=True):
    """
    One line of the log. docs/policy.md documents the keys.
    """

    v: int = field(default_factory=lambda: VERSION)
    time: int = 0
    node: str = ""
    version: int = 0
    point: str = ""
    effect: str = ""
    rule: str = ""
    code: int = 0
    type: str = ""
    id: int | str = ""
    from_: str = field(name="from", default="")
    to: str = ""
    session: str = ""
    connector: str = ""
    peer: str = ""
    identity: str = ""
    reason: str = ""
    micros: int = 0
    obligations: list[str] | None = None
    enforced: bool = True


class DecisionLog(LineLog):
    """
    The log of decisions, in hourly files of JSON lines.

    `<directory>/decisions-<node>-YYYYMMDDTHH.jsonl`. The compiled data plane adds lines of its own, so that
    it holds all of them, in order.
    """

    what = "decisions"

    def __init__(
        self,
        directory: str,
        node: str,
        clock: IReactorTime,
        run: Callable[..., Deferred[None]] = maybeDeferred,
        most: Callable[[], int] = int,
        data_plane: DataPlane = NO_DATA_PLANE,
    ) -> None:
        super().__init__(directory, node, clock, run, most)
        self._data_plane = data_plane

    def write(self, line: DecisionLine) -> None:
        if self._data_plane.is_native:
            # It leaves each so manieth line to Python, which writes them together.
            is_full = self._data_plane.log_decision(line.time, _encode(line)) % MAX_HELD == 0
        else:
            self._lines.append(line)
            is_full = len(self._lines) == MAX_HELD
        if is_full:
            self.flush()

    def _waiting(self) -> int:
        return self._data_plane.decision_lines if self._data_plane.is_native else super()._waiting()

    def _discard(self) -> None:
        super()._discard()
        number, _ = self._take()
        self.lost += number

    def _take(self) -> Batches:
        if not self._data_plane.is_native:
            return super()._take()
        lost, lines, batches = self._data_plane.take_decision_log()
        self.lost += lost
        return lines, batches


class Decisions:
    """
    The counters of decisions by rule, and their log.

    `log` is None if no log is written; `hash_fields` has the keys whose values are replaced by a hash;
    `permit_sample_rate` is the share of permits that is logged.
    """

    def __init__(self, node: str) -> None:
        self.log: DecisionLog | None = None
        self.data_plane = NO_DATA_PLANE
        self.permit_sample_rate = 0.0
        self.hash_fields: Iterable[str] = ()
        self.unlogged = 0  # decisions about messages whose senders forbid a log
        self.recent: deque[DecisionLine] = deque(maxlen=MAX_RECENT)
        self._node = node
        self._counters: dict[tuple[str, str, str], RuleCounter] = {}
        self._due = 0.0  # permits to be written, in fractions
        # Counters by their numbers in the data plane, and these numbers.
        self._tallied: list[RuleCounter] = []
        self._tallies: dict[tuple[str, str, str], int] = {}

    def __iter__(self) -> Iterator[RuleCounter]:
        self._add_tallies()
        return iter(self._counters.values())

    def counter(self, point: str, effect: str, rule: str) -> RuleCounter:
        """
        The counter of this outcome.
        """
        key = point, effect, rule
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = RuleCounter(point, effect, rule)
        return found

    def forget(self, remains: Callable[[str], bool]) -> None:
        """
        Drops the counters of rules, policies and sets that do not remain when other policies become live.
        """
        self._add_tallies()
        self._tallied.clear()
        self._tallies.clear()
        self.data_plane.forget_tallies()
        self._counters = {key: counter for key, counter in self._counters.items() if remains(key[2])}

    def tally(self, counter: RuleCounter) -> int:
        """
        The number by which the data plane counts such decisions, until `forget`.
        """
        key = counter.point, counter.effect, counter.rule
        number = self._tallies.get(key)
        if number is None:
            number = self._tallies[key] = self.data_plane.add_tally()
            self._tallied.append(counter)
        return number

    def _add_tallies(self) -> None:
        """
        Adds what the data plane has counted to the counters.
        """
        for number, hits, last in self.data_plane.take_tallies():
            counter = self._tallied[number]
            counter.hits += hits
            counter.last = max(counter.last, last)

    def set_sample_rate(self, share: float) -> None:
        """
        Sets the share of permits that is logged.
        """
        self.permit_sample_rate = share
        self.data_plane.set_sample_share(share)

    def is_due(self) -> bool:
        """
        Must this permit be logged?
        """
        if self.data_plane.is_native:
            return self.data_plane.is_sample_due()
        self._due += self.permit_sample_rate
        if self._due < 1:
            return False
        self._due -= 1
        return True

    def note(self, line: DecisionLine) -> None:
        """
        Writes the line to the log, and stores it in memory if it is a refusal.
        """
        self._complete(line)
        if line.effect != "permit" and line.effect != "notApplicable":
            self.recent.append(line)
        if self.log is not None:
            self.log.write(line)

    def permit_line(self, line: DecisionLine) -> PermitLine:
        """
        The line for the data plane, which fills in the time and the id of each message.
        """
        self._complete(line)
        line.time, line.id = 1, ""
        head = DecisionLine(
            line.v, 1, line.node, line.version, line.point, line.effect, line.rule, line.code, line.type
        )
        whole, before_id = _encode(line), _encode(head)[:-1]
        return PermitLine(BEFORE_TIME, before_id[len(BEFORE_TIME) + 1 :], whole[len(before_id) :] + b"\n")

    def _complete(self, line: DecisionLine) -> None:
        """
        Adds the node's name, replaces values by hashes, and shortens what is long.
        """
        line.node = self._node
        for key in self.hash_fields:
            name = "from_" if key == "from" else key
            text = getattr(line, name)
            if text:
                setattr(line, name, "sha256:" + sha256(text.encode()).hexdigest()[:16])
        line.from_, line.to, line.type, line.session = map(
            cut, (line.from_, line.to, line.type, line.session)
        )
        line.id = cut_id(line.id)


def as_dict(line: DecisionLine) -> dict[str, object]:
    """
    The line with the keys of the log.
    """
    fields = msgspec.structs.asdict(line)
    fields["from"] = fields.pop("from_")
    return {key: value for key, value in fields.items() if value not in ("", None)}
