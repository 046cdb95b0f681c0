"""
The context of a decision: a message, and what the node has verified about its sender.

The sender's own claims in the message are not part of the context; policies see them in the message.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from msgnode.config.schema import Config
from msgnode.policy.decision.context import Context, Identity, Peer, RecordKind, unknown_record
from msgnode.policy.enforcement.points import CONNECT, IN, OUT, SUBSCRIBE
from msgnode.protocol.message import Message
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.principal import Principal
from msgnode.sessions.session import Connection, Session


class ContextBuilder:
    """
    The policy information point (XACML's PIP): makes the context of a decision.

    `who` returns the principal of a connection's token, `now` the local time.
    """

    def __init__(
        self,
        config: Config,
        now: Callable[[], datetime],
        who: Callable[[Connection], Principal | None],
        owners: AddressOwnership,
    ) -> None:
        self.who = who
        self.kind_of: Callable[[str], RecordKind | None] = unknown_record
        self.pools: Mapping[str, str] = {}  # the names of pools by their schemes
        self.domain = config.domain
        self._identity = config.identity
        self._policy = config.policy
        self._now = now
        self._owners = owners

    def manager(self, connection: Connection) -> str:
        """
        The name in `policy.managers` as which this connection is authenticated, by a certificate or a token;
        or "".

        For a token it is the user's whole address, because the bare name may be another user's at another
        provider.
        """
        proof = self.who(connection)
        names = [connection.identity, proof.user if proof is not None else ""]
        return next((name for name in names if name and name in self._policy.managers), "")

    def identity(self, point: str, connection: Connection) -> Identity | None:
        """
        The authenticated sender; None if it is not authenticated.
        """
        proof = self.who(connection)
        if proof is not None:
            return Identity(proof.username or proof.user, proof.idp, proof.scopes, proof.user)
        sender: Identity | None = getattr(
            connection, "sender", None
        )  # verified by another node of the domain
        if sender is not None:
            return sender
        name, session = connection.identity, connection.session
        if not name and point is not CONNECT and session is not None and session.connection is connection:
            name = session.identity
        return Identity(name, account=name) if name else None

    def is_verified(self, message: Message) -> bool:
        """
        Has the node authenticated the sender of a message that it received?
        """
        return message.origin is not None and self.identity(IN, message.origin) is not None

    def context(self, point: str, message: Message, session: Session | None, count: int) -> Context:
        """
        The context of a message. `session` is the sender's, at `out` the recipient's.
        """
        connection = message.origin
        sender = connection.session if connection is not None else None
        identity = None if connection is None else self.identity(point, connection)
        if point is OUT:  # the connector and peer of this recipient
            assert session is not None
            connection = session.connection
        return self.build(
            point,
            message,
            identity=identity,
            connector="" if connection is None else connection.connector,
            peer="" if connection is None else connection.peer,
            session="" if session is None else session.runtime,
            owned=None if sender is None else lambda: self._owners.owns(message.from_, sender),
            topic=lambda to: self._topic(point, to, session),
            recipients=count,
            far=getattr(connection, "far", None),
            came_from=getattr(message.origin, "came_from", None),
        )

    def hypothetical(self, point: str, message: Message, session: Session) -> Context:
        """
        The context of a message that is not sent, as if the session sent it now.
        """
        message.origin = connection = session.connection
        identity = None if connection is None else self.identity(point, connection)
        if identity is None and session.identity:
            identity = Identity(session.identity, account=session.identity)
        return self.build(
            point,
            message,
            identity=identity,
            connector="" if connection is None else connection.connector,
            peer="" if connection is None else connection.peer,
            session=session.runtime,
            owned=lambda: self._owners.owns(message.from_, session),
            topic=lambda to: self._topic(point, to, session),
        )

    def build(
        self,
        point: str,
        message: Message,
        *,
        identity: Identity | None,
        owned: Callable[[], bool] | None,
        topic: Callable[[str], tuple[str, str] | None],
        connector: str,
        peer: str,
        session: str,
        recipients: int = 1,
        far: Peer | None = None,
        came_from: Peer | None = None,
    ) -> Context:
        """
        The context of a message with these properties of its sender; the message may be hypothetical.
        """
        return Context(
            message,
            point,
            domain=self.domain,
            identity=identity,
            trust=self._identity.trust,
            now=self._now,
            connector=connector,
            peer=peer,
            session=session,
            owned=owned,
            topic=topic,
            recipients=recipients,
            far=far,
            came_from=came_from,
            kind_of=self.kind_of,
            pools=self.pools,
        )

    def _topic(self, point: str, to: str, session: Session | None) -> tuple[str, str] | None:
        """
        The owner of the address to which the session wants to subscribe; None at other points.
        """
        return self._owners.topic_owner(to, session) if point is SUBSCRIBE and session is not None else None
