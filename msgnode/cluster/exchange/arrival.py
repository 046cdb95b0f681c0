"""
The origin of a message that another member has routed, in the place of a connection.
"""

from msgnode.links.exchange.node_sessions import CONNECTOR, NodeConnection
from msgnode.links.wire.node_name import domain_of
from msgnode.policy.decision.context import Identity, Peer
from msgnode.sessions.session import Session


class MemberArrival(NodeConnection):
    """
    The origin of one message of another member. `sender` is who its client is, as that member has verified,
    and `sender_fields` the same as it goes to another domain. If the message came from another domain to that
    member, both are empty, and `came_from` has who the sender is as that domain says.
    `id` is the same for all copies of a message; `is_copy`: there are others. `hops` counts the members that
    have forwarded it. `is_from_home`: the domain of its address has published it, and that member got it for
    subscribers here.

    To policies it is no message of a peer: the two nodes are one domain.
    """

    connector = CONNECTOR
    session: Session

    def __init__(
        self, node: str, session: Session, identity: dict[str, str], id: tuple[bytes, int] | None = None
    ) -> None:
        self.id = id
        self.hops = 0
        self.is_copy = False
        super().__init__(_member(node), _carry_nothing)
        self.peer = node
        self.session = session
        user, issuer = identity.get("user", ""), identity.get("issuer", "")
        found = Identity(user, identity.get("idp", "")) if user else None
        is_own = issuer in ("", domain_of(node))
        self.sender_fields = identity if is_own else {}
        self.sender = found if is_own else None
        self.came_from = None if is_own else Peer(issuer, "", identity=found, issuer=issuer)


def _member(node: str) -> Peer:
    return Peer("", node)


def _carry_nothing(node: str, data: bytes) -> None:
    """
    Does nothing: answers to members do not go by the origin of a message.
    """
