"""
The members that decide about what there is once in the domain: the owners.

The owner of a key is the member that rendezvous hashing names (Thaler and Ravishankar, 1996: highest random
weight) among those of the configuration, so it is the same everywhere without a vote, and another list of
members moves few keys. While members have different lists, during a rolling change, each list has its owner,
and all of them must agree.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from twisted.logger import Logger

from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.membership import Members
from msgnode.links.wire.node_name import NodeName, parse

SUBJECT = "cluster.members"
MAX_LISTED = 256
log = Logger()

View = tuple[str, ...]  # the full names of the configured members, sorted
_view = msgspec.msgpack.Decoder(list[str])


def owner(key: str, view: View) -> str:
    """
    The member that decides about the key.
    """
    return max(view, key=lambda node: (blake2b(f"{node}\n{key}".encode(), digest_size=8).digest(), node))


class Owners:
    """
    The lists of members that this node and those it reaches have in their configurations.

    `names` is `cluster.members`, or empty: then nothing has an owner.
    """

    def __init__(self, members: Members, requests: MemberRequests, names: Sequence[str]) -> None:
        domain = parse(members.node).domain
        self.view: View = tuple(sorted(str(NodeName(domain, name)) for name in set(names)))
        self._requests = requests
        self._views: dict[str, View] = {}  # of other members, where they are not this node's
        requests.offer(SUBJECT, self._tell)
        requests.on_up.append(self._ask)

    def of(self, key: str) -> list[str]:
        """
        The members that decide about the key, the one by this node's own list first; none without a list.
        """
        if not self.view:
            return []
        return list(dict.fromkeys(owner(key, view) for view in (self.view, *self._views.values())))

    @property
    def everyone(self) -> frozenset[str]:
        """
        The members of all lists.
        """
        return frozenset(self.view).union(*self._views.values())

    def _tell(self, node: str, body: bytes) -> bytes:
        if body:
            self._note(node, _view.decode(body))
        return msgspec.msgpack.encode(self.view)

    def _ask(self, node: str) -> None:
        asked = self._requests.ask(node, SUBJECT, msgspec.msgpack.encode(self.view))
        asked.addCallback(lambda body: self._note(node, _view.decode(body)))
        asked.addErrback(lambda why: None)  # it has another release, or went away: it asks this node then

    def _note(self, node: str, listed: list[str]) -> None:
        if len(listed) > MAX_LISTED:
            raise ValueError(f"a list of {len(listed)} members")
        view = tuple(sorted({str(parse(name)) for name in listed}))
        if view == self.view or not view:
            self._views.pop(node, None)
        elif self._views.get(node) != view:
            self._views[node] = view
            log.warn(
                "{node} has another list of members, {theirs}; until they are equal both lists count",
                node=node,
                theirs=", ".join(view)[:300],
            )
