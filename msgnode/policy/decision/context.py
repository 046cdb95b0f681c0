"""
What is known of one message while a policy decides on it.

Everything is looked up when a test asks for it, and kept for the next.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from msgnode.policy.decision import addresses
from msgnode.policy.decision.attribute import HEADER, Attribute
from msgnode.protocol.message import Message

CLAIMED, VERIFIED = "claimed", "verified"


class Identity(Struct, frozen=True):
    """
    The authenticated sender: a user name such as `ann@example.org`, and who vouches for it.
    """

    user: str
    provider: str = ""
    scopes: tuple[str, ...] = ()


class Context:
    """
    One message to one recipient, at one of the places where the node asks.

    `direction` is one of `connect`, `in`, `out`, `subscribe`.  `trust`
    is `claimed` when a sender without a verified identity is believed what
    its body says, else `verified`.  `now` gives the local time.
    `topic` tells whose an address is, and which user's.
    `consulted` says what was looked at: a sum of attributes.HEADER and so on.
    """

    __slots__ = (
        "_body",
        "connector",
        "consulted",
        "direction",
        "domain",
        "identity",
        "message",
        "now",
        "owned",
        "peer",
        "rates",
        "recipients",
        "session",
        "to",
        "topic",
        "trust",
        "unenforced",
        "values",
    )

    connector: str
    direction: str
    identity: Identity | None
    message: Message
    peer: str
    recipients: int
    session: str
    to: str
    trust: str

    def __init__(
        self,
        message: Message,
        direction: str = "in",
        to: str | None = None,
        *,
        domain: str = "",
        identity: Identity | str | None = None,
        trust: str = VERIFIED,
        now: Callable[[], datetime] = datetime.now,
        connector: str = "",
        peer: str = "",
        session: str = "",
        owned: Callable[[], bool] | None = None,
        topic: Callable[[str], tuple[str, str] | None] = lambda to: None,
        recipients: int = 1,
        rates: Callable[[str, int], float] | None = None,
    ) -> None:
        self.message = message
        self.direction = direction
        if to is None:
            to = message.to if isinstance(message.to, str) else "".join(message.to[:1])
        self.to = to
        self.domain = domain
        self.identity = Identity(identity) if isinstance(identity, str) and identity else identity or None
        self.trust = trust
        self.now = now
        self.connector = connector
        self.peer = peer
        self.session = session
        self.owned = owned
        self.topic = topic
        self.recipients = recipients
        self.rates = rates
        self.values: dict[str, Any] = {}
        self.consulted = HEADER
        self.unenforced: list[Any] = []
        self._body: Mapping[str, Any] | None = None

    def get(self, attribute: Attribute) -> Any:
        """
        The value of an attribute; None if the message has none.
        """
        try:
            return self.values[attribute.name]
        except KeyError:
            value = self.values[attribute.name] = attribute.read(self)
            self.consulted |= attribute.source
            return value

    def redirected(self, to: str) -> "Context":
        """
        The same message, were it addressed there.
        """
        moved = Context(
            self.message,
            self.direction,
            to,
            domain=self.domain,
            identity=self.identity,
            trust=self.trust,
            now=self.now,
            connector=self.connector,
            peer=self.peer,
            session=self.session,
            owned=self.owned,
            topic=self.topic,
            recipients=self.recipients,
            rates=self.rates,
        )
        moved._body = self._body
        return moved

    # -- where the attributes come from -----------------------------------

    @property
    def body(self) -> Mapping[str, Any]:
        """
        The body; empty if there is none.  Malformed if it cannot be read: nothing is known of it then.
        """
        if self._body is None:
            self._body = self.message.fields(rough=True)
        return self._body

    @property
    def source(self) -> tuple[str, str]:
        return addresses.split(self.message.from_)

    @property
    def target(self) -> tuple[str, str]:
        return addresses.split(self.to)

    @property
    def domains(self) -> tuple[str, str]:
        """
        Where it comes from and goes to: the hosts without `msg-node.`, `registry.` and the like.
        """
        return addresses.domain(self.source[1]), addresses.domain(self.target[1])

    @property
    def is_foreign(self) -> bool:
        """
        Does it come from another domain, or go to one?
        """
        hosts = [host for host in self.domains if host]
        if not self.domain:
            return len(set(hosts)) > 1
        own = self.domain.casefold().partition(":")[0]
        return any(host != own and not host.endswith("." + own) for host in hosts)

    @property
    def owns_from(self) -> bool | None:
        return None if self.owned is None else self.owned()

    @property
    def topic_owner(self) -> str | None:
        """
        Whose `to` is, for who wants to hear it: `mine`, `other` or `none`.
        """
        topic = self.topic(self.to)
        return None if topic is None else topic[0]

    @property
    def topic_user(self) -> str | None:
        """
        The verified user who owns `to`.
        """
        topic = self.topic(self.to)
        return None if topic is None else topic[1] or None

    @property
    def verified_user(self) -> str | None:
        return None if self.identity is None else self.identity.user

    @property
    def scopes(self) -> list[str] | None:
        return None if self.identity is None else list(self.identity.scopes)

    @property
    def user(self) -> str | None:
        """
        The sender's user name: verified, or as it claims where that is believed.
        """
        if self.identity is not None:
            return self.identity.user
        profile = self._claims.get("userProfile")
        user = profile.get("username") if isinstance(profile, dict) else None
        return user if isinstance(user, str) else None

    @property
    def user_domain(self) -> str | None:
        user = self.user
        return None if user is None else user.rpartition("@")[2].casefold()

    @property
    def provider(self) -> str | None:
        if self.identity is not None:
            return self.identity.provider.casefold() or None
        provider = self._claims.get("idp")
        return provider.casefold() if isinstance(provider, str) else None

    @property
    def _claims(self) -> Mapping[str, Any]:
        claims = self.body.get("identity") if self.trust == CLAIMED else None
        return claims if isinstance(claims, dict) else {}

    @property
    def moment(self) -> datetime:
        """
        The local time, once and for all tests.
        """
        found = self.values.get("")
        if found is None:
            found = self.values[""] = self.now()
        moment: datetime = found
        return moment

    def rate(self, counter: str, seconds: int) -> float | None:
        """
        How often the sender did that within so many seconds.
        """
        return None if self.rates is None else self.rates(counter, seconds)
