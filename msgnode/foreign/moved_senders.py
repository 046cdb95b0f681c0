"""
Sessions that move between the nodes of a cluster, and send to foreign domains from both.

Each node is another client of the foreign node, and subscribes there the addresses from which its sessions
send. What is sent to an address comes by each node that has it, so the earlier one gives it up when the later
one has it.
"""

import msgspec
from twisted.python.failure import Failure

from msgnode.cluster.member_requests import MemberRequests, NoAnswer
from msgnode.foreign.stubs import ForeignStubs
from msgnode.protocol.errors import Rejected

SUBJECT = "moved-senders"
MOST_TOLD = 500  # addresses of one notice


class Moved(msgspec.Struct, array_like=True):
    """
    The addresses that the asking member has subscribed in a foreign domain for sessions that came to it.
    """

    domain: str
    addresses: list[str]


_moved = msgspec.msgpack.Decoder(Moved)


class MovedSenders:
    """
    The notices between members about such addresses. One that is lost costs doubled messages for half a
    minute: then the earlier node drops what sessions that have ended there leave behind.
    """

    def __init__(self, requests: MemberRequests, stubs: ForeignStubs) -> None:
        self._requests = requests
        self._stubs = stubs
        requests.offer(SUBJECT, self._heard)
        stubs.moved_here = self._tell

    def _tell(self, domain: str, addresses: list[str]) -> None:
        for at in range(0, len(addresses), MOST_TOLD):
            body = msgspec.msgpack.encode(Moved(domain, addresses[at : at + MOST_TOLD]))
            for node in self._requests.up:
                self._requests.ask(node, SUBJECT, body).addErrback(_ignore)

    def _heard(self, node: str, body: bytes) -> bytes:
        moved = _moved.decode(body)
        found = self._stubs.domains.get(moved.domain) if self._stubs.domains is not None else None
        if found is not None:
            found.subscriptions.moved_away(moved.addresses)
        return b""


def _ignore(why: Failure) -> None:
    """
    A member that is away, busy or of an older release is not told.
    """
    why.trap(NoAnswer, Rejected)
