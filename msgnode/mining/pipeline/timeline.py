"""
Timelines: all lines of one address, and all lines of one conversation, in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgnode.mining.sql.dialect import Dialect

_SHOWN = (
    "time", "node", "kind", "event", "type", "id", "from", "to", "outcome", "code", "recipients", "waiting",
    "bytes", "micros", "session", "connector", "peer",
)  # fmt: skip


@dataclass(frozen=True)
class AddressTimeline:
    """
    The lines of an address: what it did, and what was done to it. For a runtime, this includes its session.

    `since` is in nanoseconds since 1970; `most` is the number of lines, 0 for all.
    """

    address: str
    since: int = 0
    most: int = 0

    def __call__(self, sql: Dialect, lines: str) -> str:
        """
        The query of these lines.
        """
        below = self.address.rstrip("/") + "/"
        address, beginning = sql.text(self.address), sql.text(below)
        about = [f"session = {address}", f"array_contains(resources, {address})"]
        for column in (sql.named("from"), sql.named("to")):
            about += [f"{column} = {address}", f"left({column}, {len(below)}) = {beginning}"]
        order = ("time", "kind", "node", "id", "event", "type", "session", "from", "to")
        return f"""
            SELECT {_columns(sql, _SHOWN)}, {address} AS about FROM {lines}
            WHERE {_between(sql, self.since)} AND ({" OR ".join(about)})
            {_ordered(sql, order, self.most)}"""


@dataclass(frozen=True)
class Conversation:
    """
    The lines of a message and its responses at all nodes: those with this id and between two addresses, or,
    without addresses, those with this id or transaction.

    `since` and `until` are in nanoseconds since 1970; `most` is the number of lines, 0 for all.
    """

    id: str
    between: tuple[str, str] | None = None
    since: int = 0
    until: int = 0
    most: int = 0

    def __call__(self, sql: Dialect, lines: str) -> str:
        """
        The query of these lines.
        """
        id = sql.text(self.id)
        if self.between is None:
            same = f"(id = {id} OR transaction = {id})"
        else:
            one, other = (sql.text(address) for address in self.between)
            both = (f"{sql.named(name)} IN ({one}, {other})" for name in ("from", "to"))
            same = f"id = {id} AND {' AND '.join(both)}"
        order = ("time", "type", "node", "from", "to", "outcome")
        return f"""
            SELECT {_columns(sql, _SHOWN)} FROM {lines}
            WHERE kind = 'message' AND {_between(sql, self.since, self.until)} AND {same}
            {_ordered(sql, order, self.most)}"""


def _between(sql: Dialect, since: int, until: int = 0) -> str:
    """
    Is a line of this time? By the date, too, for only files of such days are read then.
    """
    found = ["TRUE"]
    found += [f"time >= {since}", f"date >= {sql.day(str(since))}"] if since else []
    found += [f"time <= {until}", f"date <= {sql.day(str(until))}"] if until else []
    return " AND ".join(found)


def _columns(sql: Dialect, names: Sequence[str]) -> str:
    return ", ".join(map(sql.named, names))


def _ordered(sql: Dialect, names: Sequence[str], most: int) -> str:
    order = ", ".join(f"{sql.named(name)} NULLS FIRST" for name in names)
    return f"ORDER BY {order}" + (f" LIMIT {most}" if most else "")
