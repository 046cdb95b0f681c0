"""
The request context: what is known about a message while a policy decides about it.

Attributes are computed on first use and cached.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from msgnode.policy.decision import addresses
from msgnode.policy.decision.attribute import HEADER, Attribute
from msgnode.protocol.message import Message

NO_POOLS: Mapping[str, str] = {}
CLAIMED, VERIFIED = "claimed", "verified"


class Identity(Struct, frozen=True):
    """
    The authenticated sender: a user name such as `ann@example.org`, the identity provider, and the whole
    address of the user.
    """

    user: str
    provider: str = ""
    scopes: tuple[str, ...] = ()
    account: str = ""


class Peer(Struct, frozen=True):
    """
    The node at the other end of a message that crosses between domains: where it came from, at `out` where
    it goes.

    `kind` is `node`, or `stub`; `hops` is the number of links it passed. `identity` is the sender's as the
    domain `issuer` says.
    """

    domain: str
    node: str
    kind: str = "node"
    hops: int = 0
    identity: Identity | None = None
    issuer: str = ""


class RecordKind(Struct, frozen=True):
    """
    The record that a message names: its name, its namespaces, and the keys of its slots by their names.
    """

    name: str
    namespaces: tuple[str, ...]
    keys: dict[str, str]


def unknown_record(id: str) -> RecordKind | None:
    """
    The record of each id where there are no definitions: None.
    """
    return None


class Context:
    """
    A message to one recipient, at one enforcement point.

    `direction` is `connect`, `in`, `out` or `subscribe`. `trust` is `claimed` if an unauthenticated sender's
    identity is taken from the body, else `verified`. `now` returns the local time. `topic` returns the owner
    of an address and the owner's user. `far` is the other node, if the message crosses between domains.
    `came_from` is the other node, at `out` too, if its domain says who the sender is.
    `kind_of` returns what is known of the record with an id. `pools` has the names of pools by their schemes.
    `consulted` is the sum of the sources of the attributes that were read
    (attribute.HEADER etc.).
    """

    __slots__ = (
        "_body",
        "came_from",
        "connector",
        "consulted",
        "direction",
        "domain",
        "far",
        "identity",
        "kind_of",
        "message",
        "now",
        "owned",
        "peer",
        "pools",
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
    far: Peer | None
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
        far: Peer | None = None,
        kind_of: Callable[[str], RecordKind | None] = unknown_record,
        came_from: Peer | None = None,
        pools: Mapping[str, str] = NO_POOLS,
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
        self.far = far
        self.kind_of = kind_of
        self.pools = pools
        self.came_from = far if came_from is None and direction != "out" else came_from
        self.values: dict[str, Any] = {}
        self.consulted = HEADER
        self.unenforced: list[Any] = []
        self._body: Mapping[str, Any] | None = None

    def get(self, attribute: Attribute) -> Any:
        """
        The value of an attribute, or None.
        """
        try:
            return self.values[attribute.name]
        except KeyError:
            value = self.values[attribute.name] = attribute.read(self)
            self.consulted |= attribute.source
            return value

    def redirected(self, to: str) -> "Context":
        """
        The context of the same message with another `to`.
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
            far=self.far,
            kind_of=self.kind_of,
            came_from=self.came_from,
            pools=self.pools,
        )
        moved._body = self._body
        return moved

    # -- sources of the attributes --------------------------------------------

    @property
    def body(self) -> Mapping[str, Any]:
        """
        The body; {} if there is none. Malformed if it cannot be decoded.
        """
        if self._body is None:
            self._body = self.message.fields(lossy=True)
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
        The domains of sender and recipient: the hosts without `msg-node.`, `registry.` and so on.
        """
        return addresses.domain(self.source[1]), addresses.domain(self.target[1])

    @property
    def record(self) -> RecordKind | None:
        """
        The record that the message names, if the node knows it.
        """
        id = self.message.record
        return None if id is None else self.kind_of(id)

    def slot(self, name: str) -> Any:
        """
        The value of a slot of the record, by its name or by its key; None if it is missing.
        """
        if self.message.record is None:
            return None
        body, kind = self.body, self.record
        if name not in body and kind is not None and name in kind.keys:
            return body.get(kind.keys[name])
        return body.get(name)

    @property
    def is_foreign(self) -> bool:
        """
        Is the sender or the recipient of another domain?
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
        The owner of `to` as seen by the sender: `mine`, `other` or `none`; None if that is not known.
        """
        topic = self.topic(self.to)
        return None if topic is None else topic[0]

    @property
    def topic_user(self) -> str | None:
        """
        The authenticated user who owns `to`.
        """
        topic = self.topic(self.to)
        return None if topic is None else topic[1] or None

    @property
    def pool(self) -> str | None:
        """
        The name of the pool that the message asks to lease addresses of.
        """
        if not self.pools or self.message.type.casefold() != "create":
            return None
        if not addresses.is_allocation(self.to):
            return None
        always = self.to.endswith("/hyperty-address-allocation")
        scheme = "hyperty" if always else self.body.get("scheme") or "hyperty"
        return self.pools.get(scheme) if isinstance(scheme, str) else None

    @property
    def account(self) -> str | None:
        """
        The whole address of the authenticated user.
        """
        return None if self.identity is None else self.identity.account or None

    @property
    def verified_user(self) -> str | None:
        return None if self.identity is None else self.identity.user

    @property
    def asserted(self) -> Identity | None:
        """
        The sender's identity as its own domain says: this node, or the one it came from.
        """
        return self.came_from.identity if self.came_from is not None else self.identity

    @property
    def issuer(self) -> str | None:
        """
        The domain that says who the sender is; None if none does.
        """
        if self.asserted is None:
            return None
        return (self.came_from.issuer if self.came_from is not None else self.domain) or None

    @property
    def scopes(self) -> list[str] | None:
        return None if self.identity is None else list(self.identity.scopes)

    @property
    def user(self) -> str | None:
        """
        The sender's user name: authenticated, or as claimed in the body if that is trusted.
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
        The local time, which is the same for all tests.
        """
        found = self.values.get("")
        if found is None:
            found = self.values[""] = self.now()
        moment: datetime = found
        return moment

    def rate(self, counter: str, seconds: int) -> float | None:
        """
        The sender's count within a time window of `seconds`.
        """
        return None if self.rates is None else self.rates(counter, seconds)
