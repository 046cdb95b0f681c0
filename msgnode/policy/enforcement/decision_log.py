"""
What was decided: counted by rule, and written down one line each.

A public contract, docs/policy.md, "Decision log".  What is refused is
always written, and a share of what is permitted; never a body, never a token.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256

import msgspec
from msgspec import Struct, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.storage.json_lines import MAX_HELD, LineLog, cut, cut_id

VERSION = 1
MAX_RECENT = 100  # of what was refused, for whoever asks


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
    One line of the log.  docs/policy.md says what each key means.
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

    `<directory>/decisions-<node>-YYYYMMDDTHH.jsonl`.
    """

    what = "decisions"

    def __init__(
        self,
        directory: str,
        node: str,
        clock: IReactorTime,
        run: Callable[..., Deferred[None]] = maybeDeferred,
        most: Callable[[], int] = int,
    ) -> None:
        super().__init__(directory, node, clock, run, most)

    def write(self, line: DecisionLine) -> None:
        self._held.append(line)
        if len(self._held) == MAX_HELD:
            self.flush()


class Decisions:
    """
    The counters of decisions by rule, and their log.

    `log` is None where none is written; `mask` names the keys whose values are replaced by a hash.
    """

    def __init__(self, node: str) -> None:
        self.log: DecisionLog | None = None
        self.share = 0.0  # of what is permitted that is written
        self.hash_fields: Iterable[str] = ()
        self.unlogged = 0  # decisions on messages whose senders wanted nothing written down
        self.recent: deque[DecisionLine] = deque(maxlen=MAX_RECENT)
        self._node = node
        self._tallies: dict[tuple[str, str, str], RuleCounter] = {}
        self._due = 0.0

    def __iter__(self) -> Iterator[RuleCounter]:
        return iter(self._tallies.values())

    def tally(self, point: str, effect: str, rule: str) -> RuleCounter:
        """
        The one count of this outcome.
        """
        key = point, effect, rule
        found = self._tallies.get(key)
        if found is None:
            found = self._tallies[key] = RuleCounter(point, effect, rule)
        return found

    def forget(self, remains: Callable[[str], bool]) -> None:
        """
        Other policies are live: only what remains of rules, policies and sets is counted on.
        """
        self._tallies = {key: tally for key, tally in self._tallies.items() if remains(key[2])}

    def is_due(self) -> bool:
        """
        Is one that is permitted to be written?
        """
        self._due += self.share
        if self._due < 1:
            return False
        self._due -= 1
        return True

    def note(self, line: DecisionLine) -> None:
        """
        Write it down.
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
        if line.effect != "permit" and line.effect != "notApplicable":
            self.recent.append(line)
        if self.log is not None:
            self.log.write(line)


def as_dict(line: DecisionLine) -> dict[str, object]:
    """
    The line as the log has it.
    """
    fields = msgspec.structs.asdict(line)
    fields["from"] = fields.pop("from_")
    return {key: value for key, value in fields.items() if value not in ("", None)}
