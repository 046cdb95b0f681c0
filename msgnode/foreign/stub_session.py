"""
The session of a foreign domain: to the bus, its stub is a client that sends for the whole domain.
"""

from collections.abc import Callable

from msgnode.links.exchange.node_sessions import NodeConnection
from msgnode.policy.decision.context import Peer
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import Sessions

CONNECTOR = "stub"


class StubConnection(NodeConnection):
    """
    The connection of a foreign domain's session, and the origin of its messages.
    """

    connector = CONNECTOR

    @property
    def came_from(self) -> Peer:
        return self.far


def name_of(domain: str) -> str:
    """
    The name of the domain's session here.
    """
    return f"mn://{domain}/stub"


def make_session(domain: str, sessions: Sessions, carry: Callable[[str, bytes], None]) -> Session:
    """
    A session for the domain. It is not stored, and no client can come back to it.
    """
    session = Session(name_of(domain), sessions)
    connection = StubConnection(Peer(domain, name_of(domain), CONNECTOR, 1), carry)
    connection.session = session
    session.attach(connection)
    session.flush()
    return session
