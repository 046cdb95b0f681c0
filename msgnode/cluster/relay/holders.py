"""
The members that hold the sessions of HTTP clients.

A session token says nothing about the holder, because a session moves and keeps it; the directory names it.
The other members are asked only for a token that the directory does not have (yet), and so often at most: a
client can make tokens up. The id of a Socket.IO client (sid) never leaves its process: it ends with a tag of
that process.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256
from secrets import token_urlsafe

import msgspec
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.relay.relay import NotRelayed
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.token_bucket import refilled

SUBJECT, NAME_SUBJECT = "session-token", "session-name"
ASK_SECONDS = 1.0
UNKNOWN_SECONDS = 1.0  # for which members are not asked again for a token that none of them knows
MAX_UNKNOWN = 10_000
QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE = 100, 500
QUIET = "other nodes were asked for too many tokens; come again"
HASH_BYTES = 32

SID_BYTES, TAG_BYTES = 15, 6  # of chance, and of the hash of a process
TAG_CHARS = 8

_YES, _NO = b"1", b"0"


class _Search(msgspec.Struct, eq=False):
    """
    A question to all members that are up.
    """

    waiting: list[Deferred[str]]
    left: int = 0
    silent: str = ""  # a member that did not answer


class TokenHolders:
    """
    The members that hold sessions, by the hash of the session token.

    `is_held` says whether this node holds it, `holder` has the member of the directory; `up` are the members
    that are reached, and `away` those that are not, and may soon be back.
    """

    def __init__(
        self,
        requests: MemberRequests,
        is_held: Callable[[bytes], bool],
        holder: Callable[[bytes], str],
        up: Callable[[], Iterable[str]],
        away: Callable[[], Iterable[str]],
        seconds: Callable[[], float],
    ) -> None:
        self._requests = requests
        self._is_held = is_held
        self._holder = holder
        self._up = up
        self._away = away
        self._seconds = seconds
        self._unknown: BoundedCache[bytes, float] = BoundedCache(MAX_UNKNOWN)
        self._searches: dict[bytes, _Search] = {}
        self._questions, self._asked_at = float(QUESTIONS_AT_ONCE), seconds()  # that may be asked, since when
        requests.offer(SUBJECT, self._asked)

    def _asked(self, node: str, token_hash: bytes) -> bytes:
        if len(token_hash) != HASH_BYTES:
            raise ValueError(f"a hash of {len(token_hash)} bytes")
        return _YES if self._is_held(token_hash) else _NO

    def find(self, token_hash: bytes) -> Deferred[str]:
        """
        The other member that holds the session; "" if none does. Fails with NotRelayed if a member that may
        hold it does not say.
        """
        known = self._holder(token_hash)
        if known in set(self._up()):
            return succeed(known)
        if known in set(self._away()):
            return fail(NotRelayed(f"{known}, which holds this session, is not reached"))
        until = self._unknown.get(token_hash)
        if until is not None and self._seconds() < until:
            return succeed("")
        found: Deferred[str] = Deferred()
        search = self._searches.get(token_hash)
        if search is not None:
            search.waiting.append(found)
            return found
        if not self._may_ask():
            return fail(NotRelayed(f"this token is not known yet, and {QUIET}", 503, "limit"))
        search = self._searches[token_hash] = _Search([found])
        self._ask(token_hash, search)
        return found

    def _may_ask(self) -> bool:
        now = self._seconds()
        self._questions = refilled(
            self._questions, now - self._asked_at, QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE
        )
        self._asked_at = now
        if self._questions < 1:
            return False
        self._questions -= 1
        return True

    def _ask(self, token_hash: bytes, search: _Search) -> None:
        nodes = list(self._up())
        search.left = len(nodes)
        for node in nodes:
            asked = self._requests.ask(node, SUBJECT, token_hash, ASK_SECONDS)
            asked.addCallbacks(
                self._said,
                self._silent,
                (token_hash, search, node),
                errbackArgs=(token_hash, search, node),
            )
        if not nodes:
            self._none(token_hash, search)

    def _said(self, answer: bytes, token_hash: bytes, search: _Search, node: str) -> None:
        search.left -= 1
        if self._searches.get(token_hash) is not search:
            return
        if answer == _YES:
            self._finish(token_hash, search, node)
        elif not search.left:
            self._none(token_hash, search)

    def _silent(self, why: Failure, token_hash: bytes, search: _Search, node: str) -> None:
        search.left -= 1
        search.silent = node
        if not search.left and self._searches.get(token_hash) is search:
            self._none(token_hash, search)

    def _none(self, token_hash: bytes, search: _Search) -> None:
        silent = search.silent or next(iter(self._away()), "")
        if silent:
            why = f"{silent}, which may hold this session, is not reached"
            self._finish(token_hash, search, NotRelayed(why))
            return
        self._unknown.put(token_hash, self._seconds() + UNKNOWN_SECONDS)
        self._finish(token_hash, search, "")

    def _finish(self, token_hash: bytes, search: _Search, result: str | NotRelayed) -> None:
        del self._searches[token_hash]
        for each in search.waiting:
            if each.called:
                continue  # its client is gone
            if isinstance(result, str):
                each.callback(result)
            else:
                each.errback(result)


class SessionNames:
    """
    The runtimeURLs of sessions, by the hash of their token, as their holders say.

    `name_of` has that of a session of this node, "" if it is not here. A member that asks has the token.
    """

    def __init__(self, requests: MemberRequests, name_of: Callable[[bytes], str]) -> None:
        self._requests = requests
        self._name_of = name_of
        requests.offer(NAME_SUBJECT, self._asked)

    def _asked(self, node: str, token_hash: bytes) -> bytes:
        if len(token_hash) != HASH_BYTES:
            raise ValueError(f"a hash of {len(token_hash)} bytes")
        return self._name_of(token_hash).encode()

    def find(self, node: str, token_hash: bytes) -> Deferred[str]:
        """
        The runtimeURL of the session at that member; "" if it is not there. Fails with Rejected.
        """
        return self._requests.ask(node, NAME_SUBJECT, token_hash, ASK_SECONDS).addCallback(bytes.decode)


class SidTags:
    """
    The tags at the end of sids, by which a node knows the process of a Socket.IO client.

    A tag is a hash and no secret: a sid that is guessed is unknown at the process that it names.
    """

    def __init__(self, node: str, epoch: tuple[bytes, int]) -> None:
        self._own = tag(node, epoch)
        self._nodes: dict[str, str] = {}
        self._tags: dict[str, str] = {}

    def new_sid(self) -> str:
        return token_urlsafe(SID_BYTES) + self._own

    def holder(self, sid: str) -> str:
        """
        The other member at which that client is; "" if it is none that is known.
        """
        return self._nodes.get(sid[-TAG_CHARS:], "")

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        """
        A member has started: the clients of its earlier process are gone. It keeps its tag while it is away.
        """
        self._nodes.pop(self._tags.get(node, ""), None)
        found = self._tags[node] = tag(node, epoch)
        self._nodes[found] = node


def tag(node: str, epoch: tuple[bytes, int]) -> str:
    digest = sha256(b"%s\0%s\0%d" % (node.encode(), *epoch)).digest()
    return urlsafe_b64encode(digest[:TAG_BYTES]).decode()
