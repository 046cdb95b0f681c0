"""
Senders: what the node itself knows of whoever sends a message, for the policies.

Never from what a message claims; that is in the message, and policies see it there.
"""

from collections.abc import Callable
from datetime import datetime

from msgnode.config.schema import Config
from msgnode.policy.decision.context import Context, Identity
from msgnode.policy.enforcement.points import CONNECT, OUT, SUBSCRIBE
from msgnode.protocol.message import Message
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.principal import Principal
from msgnode.sessions.session import Connection, Session


class ContextBuilder:
    """
    The policy information point (XACML's PIP): makes the context of a decision.

    `who` tells whose token a connection has shown, `now` the local time.
    """

    def __init__(
        self,
        config: Config,
        now: Callable[[], datetime],
        who: Callable[[Connection], Principal | None],
        owners: AddressOwnership,
    ) -> None:
        self.who = who
        self.domain = config.domain
        self._identity = config.identity
        self._policy = config.policy
        self._now = now
        self._owners = owners

    def manager(self, connection: Connection) -> str:
        """
        The name in `policy.managers` that this very connection has shown, by a certificate or a token.

        A token's is the user's whole address: a bare name may be another's at another provider.
        """
        proof = self.who(connection)
        names = [connection.identity, proof.user if proof is not None else ""]
        return next((name for name in names if name and name in self._policy.managers), "")

    def identity(self, point: str, connection: Connection) -> Identity | None:
        """
        Who the node knows the sender to be.
        """
        proof = self.who(connection)
        if proof is not None:
            return Identity(proof.username or proof.user, proof.idp, proof.scopes)
        name, session = connection.identity, connection.session
        if not name and point is not CONNECT and session is not None and session.connection is connection:
            name = session.identity
        return Identity(name) if name else None

    def context(self, point: str, message: Message, session: Session | None, count: int) -> Context:
        """
        What policies may ask about.  `session` is who sends, at `out` who gets it.
        """
        connection = message.origin
        sender = connection.session if connection is not None else None
        identity = None if connection is None else self.identity(point, connection)
        if point is OUT:  # of this leg
            assert session is not None
            connection = session.connection
        return Context(
            message,
            point,
            domain=self.domain,
            identity=identity,
            trust=self._identity.trust,
            now=self._now,
            connector="" if connection is None else connection.connector,
            peer="" if connection is None else connection.peer,
            session="" if session is None else session.runtime,
            owned=None if sender is None else lambda: self._owners.owns(message.from_, sender),
            topic=lambda to: self._topic(point, to, session),
            recipients=count,
        )

    def supposed(
        self,
        point: str,
        message: Message,
        *,
        identity: Identity | None = None,
        owned: bool | None = None,
        topic: tuple[str, str] | None = None,
        connector: str = "",
        peer: str = "",
        session: str = "",
    ) -> Context:
        """
        The same for a message that nobody has sent.
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
            owned=None if owned is None else lambda: owned,
            topic=lambda to: topic,
        )

    def _topic(self, point: str, to: str, session: Session | None) -> tuple[str, str] | None:
        """
        Whose the address is that the session wants to hear; None where nobody asks to.
        """
        return self._owners.standing(to, session) if point is SUBSCRIBE and session is not None else None
