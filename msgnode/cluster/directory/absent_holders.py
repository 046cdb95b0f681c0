"""
Holders of sessions that are away: what a member that starts cannot hear from them.

A session whose holder was killed may have begun again at another node, which was killed, too. When the first
one is back, it has an older session than the one that is away, and what waited for it there may have come to
the client at the other node. So the members tell each other which sessions they know at a member that is
away, with higher generations.
"""

from collections.abc import Callable, Iterable, Mapping

from msgnode.cluster.directory.address_table import SessionEntry, View
from msgnode.cluster.directory.wire import MAX_ENTRIES, SESSION_BYTES, Elsewhere, HeldSession, entry_bytes

MAX_SESSIONS = 100_000  # that are known here, or wait to be sent to one member; others are not
HEAD_BYTES = 1024  # of a payload, without its sessions

Holders = list[tuple[str, SessionEntry]]


class AbsentHolders:
    """
    The sessions that members say to know at a member that is away, each until that member says so itself, or
    for `lease_seconds`.
    """

    def __init__(self, seconds: Callable[[], float], lease_seconds: float, most: int = MAX_SESSIONS) -> None:
        self._most = most
        self._seconds = seconds
        self._lease_seconds = lease_seconds
        self._known: dict[str, tuple[float, str, SessionEntry]] = {}  # by name, the oldest first

    def note(self, node: str, session: HeldSession) -> bool:
        """
        Notes a session at that member. False if one with a higher generation is known, or too many are.
        """
        name = session.name
        known = self._known.get(name)
        if known is not None and known[2].generation >= session.generation:
            return False
        if known is None and len(self._known) >= self._most:
            return False
        entry = SessionEntry(View(node, 0), session.token_hash, session.generation)
        self._known.pop(name, None)
        self._known[name] = self._seconds() + self._lease_seconds, node, entry
        return True

    def forget(self, node: str) -> None:
        """
        The member is there, and has said what it holds.
        """
        self._known = {name: known for name, known in self._known.items() if known[1] != node}

    def forget_old(self) -> None:
        """
        Forget those whose lease has ended. Call it every few seconds.
        """
        now = self._seconds()
        while self._known:
            name, (until, _, _) = next(iter(self._known.items()))
            if until > now:
                break
            del self._known[name]

    def merged(self, name: str, found: Holders) -> Holders:
        """
        The holders of a session that are `found`, with the one that is away; the highest (generation, member)
        last.
        """
        known = self._known.get(name)
        if known is None or any(node == known[1] for node, _ in found):
            return found
        return sorted([*found, known[1:]], key=lambda item: (item[1].generation, item[0]))


class Telling:
    """
    The sessions at members that are away of which one other member has to hear.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, HeldSession]] = {}  # by member that is away
        self._count = 0

    def add(self, node: str, session: HeldSession) -> None:
        sessions = self._sessions.setdefault(node, {})
        is_new = session.name not in sessions
        if not is_new or self._count < MAX_SESSIONS:
            self._count += is_new
            sessions[session.name] = session

    def clear(self) -> None:
        self._sessions.clear()
        self._count = 0

    def send(self, send: Callable[[Elsewhere], bool], most_bytes: int) -> bool:
        """
        Sends all of it. False if there was no room: then the rest is sent the next time.
        """
        while self._sessions:
            node, sessions = next(iter(self._sessions.items()))
            part = _first(sessions, most_bytes - HEAD_BYTES)
            if part and not send(Elsewhere(node, part)):
                return False
            for session in part:
                del sessions[session.name]
            self._count -= len(part)
            if not sessions:
                del self._sessions[node]
        return True


def _first(sessions: Mapping[str, HeldSession], most_bytes: int) -> list[HeldSession]:
    """
    The first sessions that fit into one payload, at least one.
    """
    found: list[HeldSession] = []
    size = 0
    for session in sessions.values():
        size += entry_bytes(session.name) + SESSION_BYTES
        if found and (size > most_bytes or len(found) == MAX_ENTRIES):
            break
        found.append(session)
    return found


def higher(holders: Iterable[tuple[str, SessionEntry]], node: str, absent: frozenset[str]) -> Holders:
    """
    Of the holders of a session, those that are `absent` and have it with a higher generation than `node` has.
    """
    listed = list(holders)
    own = max([entry.generation for holder, entry in listed if holder == node], default=0)
    return [(holder, entry) for holder, entry in listed if holder in absent and entry.generation > own]
