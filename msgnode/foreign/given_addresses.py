"""
Addresses that foreign nodes give to sessions here, by their allocation services.

To a foreign node they belong to this node, its client. What is sent to them is passed on to the session, and
they are given back when it ends.
"""

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from msgnode.foreign.header_edit import edited
from msgnode.foreign.host_names import HostNames
from msgnode.foreign.subscriptions import Subscriptions
from msgnode.links.exchange.allocations import Allocations, make_void, own_address
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.protocol.address import Domain
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, decode
from msgnode.sessions.session import Session


class Events:
    """
    A counter of events, by a word.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def note(self, of: str, event: str) -> None:
        self._note(event)


class GivenAddresses:
    """
    The addresses that one foreign node has given to sessions here.

    `post` gives a message to its stub, False if it takes none; `me` is this node's name there. `want` lets
    the stub start. `note` counts by a word.
    """

    def __init__(
        self,
        node: NodeParts,
        names: HostNames,
        subscriptions: Subscriptions,
        post: Callable[[bytes], bool],
        me: Callable[[], str],
        want: Callable[[], None],
        note: Callable[[str], None],
        clock: IReactorTime,
    ) -> None:
        self._node = node
        self._subscriptions = subscriptions
        self._post = post
        self._me = me
        self._want = want
        self._note = note
        self._own = own_address(Domain(node.config.domain))
        self._allocations = Allocations(node, names, self._send, clock, Events(note), self._bound)
        self.is_service = self._allocations.is_service
        self.check = self._allocations.check
        self.sent = self._allocations.sent
        self.stop = self._allocations.stop

    def __len__(self) -> int:
        return len(self._allocations)

    def __contains__(self, address: str) -> bool:
        return address in self._allocations

    def adopt(self, address: str, session: Session) -> None:
        """
        Takes an address that the session had before a restart, or at another member.
        """
        self._allocations.adopt(address)
        self._bound(address, session)
        self._want()

    def _bound(self, address: str, session: Session) -> None:
        try:
            self._subscriptions.given(address, session)
        except Rejected as why:  # it is lost there if the foreign node loses its memory
            self._note(why.reason)

    def undelivered(self, request: Message) -> None:
        """
        A request has not left.
        """
        if self.is_service(request.to):
            self._allocations.not_delivered(request)

    def _send(self, request: Message, lost: Callable[[], None]) -> bool:
        """
        Sends a request of this node's own: the foreign node answers it by its name there.
        """
        self._want()
        return self._post(edited(request.data, **{"from": self._name()}))

    def _name(self) -> str:
        return f"{self._me()}/addresses" if self._me() else ""

    def take(self, message: Message) -> bool:
        """
        Takes the answer to a request of this node's own; False if it is another message.
        """
        if message.to != self._name():
            return False
        self._allocations.answered_node(decode(edited(message.data, to=self._own)))
        return True

    def refuse(self, message: Message) -> None:
        """
        Gives back the addresses in an answer that comes too late.
        """
        self._allocations.refuse(message)

    def answered(self, message: Message) -> None:
        """
        Binds the addresses in an answer of the foreign node to the session that asked. If that has no room
        for them, the answer says so.
        """
        bound = self._allocations.answered(message)
        if bound is not None:
            self._note(bound.reason)
            make_void(message, bound)

    def unbound(self, address: str, session: Session) -> None:
        """
        A session is no longer bound to the address.
        """
        if address in self._allocations:
            self._subscriptions.given_back(address, session)
            self._allocations.unbound(address, session)
