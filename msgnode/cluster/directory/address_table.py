"""
The address table: the other members that hold each address.

The table has one dict entry for each address. Its value is an object that all addresses with the same holders
share, so that an address costs its string and its entry, and so that all addresses of a member change at
once: a member's addresses as one snapshot gave them are a view, and when a view is dropped only the shared
objects are changed. The entries themselves are removed later, in slices.
"""

from collections.abc import Callable, Iterator
from weakref import WeakSet, WeakValueDictionary

import msgspec

from msgnode.cluster.directory.token_index import INDEX_ENTRY_BYTES, TokenIndex
from msgnode.cluster.directory.wire import SHARDS, TOKEN_HASH_BYTES, HeldSession
from msgnode.sessions.routing import RUNTIMES
from msgnode.structures.time_slices import ADDRESSES

MAX_SEGMENTS = 32  # path segments below a runtimeURL that a lookup tries; an attacker chooses the slashes
ENTRY_BYTES = 110  # of memory for an address, without its characters
SESSION_ENTRY_BYTES = 280 + INDEX_ENTRY_BYTES  # more for a session
# The upper bits of a hash, as an index from -256 to 255, because a dict uses the lower ones. A single dict of
# a million addresses would hold the event loop for 30 ms whenever it grows.
SHIFT = 55


class View:
    """
    The addresses of one member, as one snapshot and the deltas after it gave them.

    `count` is the number of its entries that are in the table, `size` their estimated bytes of memory.
    """

    __slots__ = ("count", "is_valid", "names", "node", "serial", "shared_by", "size")

    def __init__(self, node: str, serial: int) -> None:
        self.node = node
        self.names = (node,)
        self.serial = serial
        self.is_valid = True
        self.count = self.size = 0
        self.shared_by: WeakSet[Holders] = WeakSet()


# There may be a million of the two structs without `gc`, and they are in no circle: the collector would hold
# the event loop for 200 ms whenever it looks through them.
class SessionEntry(msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    A session in a view.
    """

    view: View
    token_hash: bytes
    generation: int


class Holders:
    """
    The holders of all addresses that are in the same views; `names` are the members of those that are valid.
    """

    __slots__ = ("__weakref__", "names", "views")

    sessions: tuple[SessionEntry, ...] = ()

    def __init__(self, views: tuple[View, ...]) -> None:
        self.views = views
        self.names: tuple[str, ...] = ()
        self.refresh()

    def refresh(self) -> None:
        self.names = tuple(sorted({view.node for view in self.views if view.is_valid}))


class SessionHolders(msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    The holders of a runtimeURL, with the session in each view. `names` is the member whose session has the
    highest (generation, member): the others are letting it go, and another session that is bound to its name
    hears nothing. Where sessions have no generations all members that hold it count.
    """

    holders: Holders
    sessions: tuple[SessionEntry, ...]

    @property
    def names(self) -> tuple[str, ...]:
        sessions = self.sessions
        if len(sessions) == 1 and sessions[0].view.is_valid:
            return sessions[0].view.names
        valid = [entry for entry in sessions if entry.view.is_valid]
        if not valid:
            return self.holders.names
        # Of two views of a member the newer one counts, which is the later.
        latest = {entry.view.node: entry for entry in valid}
        generation, node = max((entry.generation, node) for node, entry in latest.items())
        return (node,) if generation else tuple(sorted(latest))

    @property
    def views(self) -> tuple[View, ...]:
        return self.holders.views


class AddressTable:
    """
    The addresses of all other members.
    """

    def __init__(self) -> None:
        self.count = self.size = 0  # of all views
        # Called with each address that a member holds from now on.
        self.added: Callable[[str], None] = lambda address: None
        self._serial = 0
        self._shards: list[dict[str, Holders | SessionHolders]] = [{} for _ in range(SHARDS)]
        self._shared: WeakValueDictionary[tuple[View, ...], Holders] = WeakValueDictionary()
        self._tokens = TokenIndex()
        self._dropped: set[View] = set()  # whose entries are not all removed yet

    # -- lookups -------------------------------------------------------------------

    def holders(self, address: str) -> tuple[str, ...]:
        """
        The members that hold the address, or the session whose runtimeURL it is below; sorted.
        """
        found = self._shards[hash(address) >> SHIFT].get(address)
        if found is None:
            return self._above(address)
        if address.startswith(RUNTIMES) and not found.sessions:
            return self._above(address) or found.names
        return found.names or self._above(address)

    def shared(self, address: str) -> tuple[str, ...]:
        """
        The members that hold this very address; sorted.
        """
        found = self._shards[hash(address) >> SHIFT].get(address)
        return found.names if found is not None else ()

    def _above(self, address: str) -> tuple[str, ...]:
        for _ in range(MAX_SEGMENTS):
            cut = address.rfind("/")
            if cut < 1:
                break
            address = address[:cut]
            found = self._shards[hash(address) >> SHIFT].get(address)
            if found is not None and any([entry.view.is_valid for entry in found.sessions]):
                return found.names
        return ()

    def sessions(self, name: str) -> list[tuple[str, SessionEntry]]:
        """
        The members that hold the session with that name, and their entries of it; the one with the highest
        (generation, member) last.
        """
        found = self._shards[hash(name) >> SHIFT].get(name)
        if found is None:
            return []
        latest = {e.view.node: e for e in found.sessions if e.view.is_valid}
        return sorted(latest.items(), key=lambda item: (item[1].generation, item[0]))

    def token_holder(self, token_hash: bytes) -> str:
        """
        The member that holds the session with this token, by its hash; "" if none is known to.
        """
        name, start = self._tokens.name(token_hash), token_hash[:TOKEN_HASH_BYTES]
        found = [node for node, entry in self.sessions(name) if entry.token_hash == start] if name else []
        return found[-1] if found else ""

    # -- changes -------------------------------------------------------------------

    def make_view(self, node: str) -> View:
        self._serial += 1
        return View(node, self._serial)

    def add(self, address: str, view: View) -> None:
        """
        Add an address to the view. If it was a session's name there, it is only an address now.
        """
        shard = self._shards[hash(address) >> SHIFT]
        found = shard.get(address)
        if found is None or view not in found.views:
            self.added(address)
        if found is None:
            shard[address] = self._holders((view,))
            self._account(view, 1, ENTRY_BYTES + len(address))
        elif view not in found.views:
            self._set(shard, address, _with(found.views, view), found.sessions)
            self._account(view, 1, ENTRY_BYTES + len(address))
        elif found.sessions:
            self._set(shard, address, found.views, self._without(address, found.sessions, view))

    def add_session(self, session: HeldSession, view: View) -> None:
        """
        Add a session's name to the view, or change its entry.
        """
        name = session.name
        shard = self._shards[hash(name) >> SHIFT]
        found = shard.get(name)
        views, sessions = (found.views, found.sessions) if found is not None else ((), ())
        if view not in views:
            views = _with(views, view)
            self._account(view, 1, ENTRY_BYTES + len(name))
        self._account(view, 0, SESSION_ENTRY_BYTES)
        entry = SessionEntry(view, session.token_hash, session.generation)
        # The newest is the last, so that it counts while two views of a member are valid.
        self._set(shard, name, views, (*self._without(name, sessions, view), entry))
        self._tokens.add(entry.token_hash, name)

    def remove(self, address: str, view: View) -> None:
        shard = self._shards[hash(address) >> SHIFT]
        found = shard.get(address)
        if found is not None and view in found.views:
            self._remove(shard, address, found, {view})

    def drop(self, view: View) -> None:
        """
        Drop all addresses of the view. From now on no lookup finds them; `sweep` removes them.
        """
        view.is_valid = False
        for holders in view.shared_by:
            holders.refresh()
        if view.count:
            self._dropped.add(view)

    @property
    def needs_sweep(self) -> bool:
        return bool(self._dropped)

    def sweep(self) -> Iterator[None]:
        """
        Removes the entries of dropped views, in slices of about ADDRESSES entries.
        """
        examined = 0
        while self._dropped:
            dropped = set(self._dropped)
            for shard in self._shards:
                examined += len(shard)
                for address, found in [each for each in shard.items() if _is_in(each[1], dropped)]:
                    self._remove(shard, address, found, dropped)
                if examined >= ADDRESSES:
                    examined = 0
                    yield
            self._dropped -= dropped

    # -- entries -------------------------------------------------------------------

    def _remove(
        self,
        shard: dict[str, Holders | SessionHolders],
        address: str,
        found: Holders | SessionHolders,
        views: set[View],
    ) -> None:
        sessions = found.sessions
        for view in views.intersection(found.views):
            self._account(view, -1, -ENTRY_BYTES - len(address))
            sessions = self._without(address, sessions, view)
        self._set(shard, address, tuple([view for view in found.views if view not in views]), sessions)

    def _set(
        self,
        shard: dict[str, Holders | SessionHolders],
        address: str,
        views: tuple[View, ...],
        sessions: tuple[SessionEntry, ...],
    ) -> None:
        if not views:
            del shard[address]
        elif sessions:
            shard[address] = SessionHolders(self._holders(views), sessions)
        else:
            shard[address] = self._holders(views)

    def _holders(self, views: tuple[View, ...]) -> Holders:
        found = self._shared.get(views)
        if found is None:
            found = self._shared[views] = Holders(views)
            for view in views:
                view.shared_by.add(found)
        return found

    def _without(self, name: str, sessions: tuple[SessionEntry, ...], view: View) -> tuple[SessionEntry, ...]:
        left = tuple([entry for entry in sessions if entry.view is not view])
        if len(left) < len(sessions):
            self._account(view, 0, -SESSION_ENTRY_BYTES)
            others = [entry.token_hash for entry in left]
            for entry in sessions:
                if entry.view is view:
                    self._tokens.remove(entry.token_hash, name, others)
        return left

    def _account(self, view: View, count: int, size: int) -> None:
        view.count += count
        view.size += size
        self.count += count
        self.size += size


def _with(views: tuple[View, ...], view: View) -> tuple[View, ...]:
    return tuple(sorted((*views, view), key=lambda each: each.serial))


def _is_in(found: Holders | SessionHolders, views: set[View]) -> bool:
    return not views.isdisjoint(found.views)
