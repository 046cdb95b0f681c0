"""
The sessions of other nodes: to the bus, another node is a client that sends for its whole domain.

Its session holds the addresses that the node's clients are subscribed to here. What the bus delivers to it
goes to the node's stream, which is its queue.
"""

from collections.abc import Callable
from functools import lru_cache

from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.wire.node_name import domain_of
from msgnode.policy.decision.context import Identity, Peer
from msgnode.protocol.close_codes import Closing
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import Sessions

CONNECTOR = "node"
MAX_NODES = 10_000  # other nodes that have a session here
MAX_NODES_PER_DOMAIN = 64


class NodeConnection:
    """
    The connection of another node's session. `far` is the node, as policies see it.

    `carry` takes what leaves for the node.
    """

    connector = CONNECTOR
    identity = ""
    bearer = ""
    acks_by_request = False
    write_paused = False
    is_from_home = False  # has the home domain of its address published it, and another member got it?

    def __init__(self, far: Peer, carry: Callable[[str, bytes], None]) -> None:
        self.session: Session | None = None
        self.far = far
        self.peer = far.domain
        self._carry = carry

    def send(self, data: bytes) -> None:
        self._carry(self.far.node, data)

    def outbox_ready(self) -> None:
        """
        Does nothing: the stream acknowledges, not the session.
        """

    def lose(self, why: Closing) -> None:
        """
        Does nothing: links end by themselves.
        """

    def abort(self) -> None:
        """
        Does nothing, as `lose`.
        """

    def pause_reading(self) -> None:
        """
        Does nothing: what waits for one message stalls no other of the node.
        """

    def resume_reading(self) -> None:
        """
        Does nothing, as `pause_reading`.
        """

    def report_undecodable(self, text: str, code: int) -> None:
        """
        Does nothing: the exchange counts what it cannot decode.
        """


class Arrival(NodeConnection):
    """
    The origin of one message of another node, in the place of a connection: it has the hops of the message,
    and the identity of its sender.

    `id` is that of the message. `is_passed_on`: another domain than the sender's sent it here, by a redirect.
    `is_proven`: its sender's node has signed it. `is_publication`: it is for subscribers here, at an address
    of the domain that it comes from.
    """

    session: Session

    def __init__(
        self,
        far: Peer,
        session: Session,
        id: tuple[bytes, int],
        carry: Callable[[str, bytes], None],
    ) -> None:
        super().__init__(far, carry)
        self.session = session
        self.id = id
        self.is_passed_on = self.is_proven = self.is_publication = False

    @property
    def came_from(self) -> Peer:
        """
        The node whose domain says who the sender is.
        """
        return self.far

    def speaks_for(self, far: Peer, session: Session) -> None:
        """
        Makes this a message of the node that sent it first.
        """
        self.far, self.peer, self.session = far, far.domain, session


def peer_of(node: str, hops: int = 0, identity: dict[str, str] | None = None) -> Peer:
    """
    The node as policies see it, with an identity that its domain asserts.
    """
    if not identity:
        return _peer_without_user(node, hops)
    domain = domain_of(node)
    user = identity.get("user") or identity.get("subject") or ""
    asserted = Identity(user, identity.get("idp", "")) if user else None
    return Peer(domain, node, "node", hops, asserted, domain if user else "")


@lru_cache(maxsize=1024)
def _peer_without_user(node: str, hops: int) -> Peer:
    return Peer(domain_of(node), node, "node", hops)


class NodeSessions:
    """
    The table of other nodes' sessions. They are stored like those of clients.

    A session ends when nothing came from the node, or went there, for as long as a subscription or a message
    may wait; one that has addresses stays as long as there is a route to the node.
    """

    def __init__(
        self,
        sessions: Sessions,
        carry: Callable[[str, bytes], None],
        has_route: Callable[[str], bool],
        seconds: Callable[[], float],
        options: ExchangeOptions,
    ) -> None:
        self._sessions = sessions
        self._carry = carry
        self._has_route = has_route
        self._seconds = seconds
        self._options = options
        self._by_domain: dict[str, dict[str, float]] = {}  # when each node was used, as the last sweep saw it
        self._number = 0
        self._used: set[str] = set()  # since the last sweep

    def __len__(self) -> int:
        return self._number

    def __contains__(self, node: str) -> bool:
        return node in self._by_domain.get(domain_of(node), ())

    def start(self) -> None:
        """
        Attaches the sessions of before a restart.
        """
        for session in [session for session in self._sessions if session.is_node]:
            self._attach(session)

    def find(self, node: str) -> Session | None:
        """
        The node's session; None if there are too many.
        """
        session = self._sessions.get(node)
        if session is None:
            if not self._has_room(domain_of(node)):
                return None
            session = self._sessions.create(node)
        if session.connection is None:
            self._attach(session)
        self._used.add(node)
        return session

    def _has_room(self, domain: str) -> bool:
        """
        Is there room for one more node of the domain, perhaps in the place of one that is idle?
        """
        nodes = self._by_domain.get(domain, {})
        if len(nodes) < MAX_NODES_PER_DOMAIN and self._number < MAX_NODES:
            return True
        self._note_used()
        since = self._seconds() - self._options.lease_seconds
        idle = [node for node, used in nodes.items() if used <= since and not self._has_addresses(node)]
        if idle:
            self.end(min(idle, key=nodes.__getitem__))
        return bool(idle)

    def nodes_of(self, domain: str) -> list[str]:
        """
        The nodes of the domain that have a session here, also those of before a restart.
        """
        return list(self._by_domain.get(domain, ()))

    def domains(self) -> list[str]:
        """
        The domains whose nodes have a session here.
        """
        return list(self._by_domain)

    def end(self, node: str) -> None:
        session = self._sessions.get(node)
        if session is not None:
            nodes = self._by_domain.get(domain_of(node), {})
            if nodes.pop(node, None) is not None:
                self._number -= 1
            if not nodes:
                self._by_domain.pop(domain_of(node), None)
            self._used.discard(node)
            self._sessions.end(session, "closed")

    def end_idle(self) -> list[str]:
        """
        Ends the sessions that are of no more use; returns their nodes. Each call notes which were used.
        """
        self._note_used()
        options = self._options
        since = self._seconds() - max(options.lease_seconds, options.max_wait_seconds)
        idle = [
            node
            for nodes in self._by_domain.values()
            for node, used in nodes.items()
            if used <= since and not (self._has_addresses(node) and self._has_route(node))
        ]
        for node in idle:
            self.end(node)
        return idle

    def _note_used(self) -> None:
        now, used = self._seconds(), self._used
        self._used = set()
        for node in used:
            self._by_domain[domain_of(node)][node] = now

    def _has_addresses(self, node: str) -> bool:
        session = self._sessions.get(node)
        return session is not None and bool(session.bindings)

    def _attach(self, session: Session) -> None:
        connection: Connection = NodeConnection(peer_of(session.runtime), self._carry)
        session.used = True
        nodes = self._by_domain.setdefault(domain_of(session.runtime), {})
        self._number += session.runtime not in nodes
        nodes[session.runtime] = self._seconds()
        self._sessions.attach(session, connection)
        session.flush()
