"""
The configuration: one Struct, filled by the TOML file and by the options.

Its types are the checks; loader.py turns their complaints into words.
"""

import socket
from typing import Annotated, Literal

from msgspec import Meta, field

from msgnode.config.address_range import expand
from msgnode.config.sections import (
    BackEndOptions,
    Bytes,
    Count,
    GlobalRegistryOptions,
    OrOff,
    Positive,
    QoSOptions,
    RegistryOptions,
    Seconds,
    Section,
)

Kind = Literal["web", "line", "admin"]
Sync = Literal["normal", "full"]
Takeover = Literal["open", "token"]
FromCheck = Literal["off", "log", "refuse"]
MessageToken = Literal["off", "require"]
Trust = Literal["verified", "claimed"]
Effect = Literal["permit", "deny"]
Share = Annotated[float, Meta(ge=0, le=1)]
MessageIdentity = Literal["ignore", "mark", "refuse"]
Auth = Literal["none", "optional", "required"]
# Those that need a secret which the node would have to share are not among them, nor is none.
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"
]

WEB, LINE, ADMIN = 9090, 9091, 9092

IDP = "devices"  # the provider of device tokens, where a policy asks for one


class ConfigError(Exception):
    """
    The configuration cannot be used; the text says where and why.
    """


class AdminOptions(Section):
    """
    The admin listener, and the host names that requests to it may use.
    """

    listen: str | None = None
    hosts: list[str] = []


class SessionTimes(Section):
    """
    Limits of a session: how long it lives without a connection, how much may wait, who may take it over.
    """

    expiry_seconds: Positive = 86400.0
    anonymous_expiry_seconds: Positive = 60.0
    unused_expiry_seconds: Positive = 60.0
    open_deadline_seconds: Positive = 10.0
    queue_messages: Count = 1000
    queue_bytes: Bytes = 8 * 1024 * 1024
    unsent_bytes: Bytes = 1024 * 1024
    max_memory_bytes: Bytes = 256 * 1024 * 1024
    takeover: Takeover = "open"
    takeover_after_seconds: Seconds = 60.0
    from_check: FromCheck = "off"
    message_token: MessageToken = "off"


class Limits(Section):
    """
    Limits of one message, one session, one user, one IP address and the whole node.
    """

    message_bytes: Bytes = 8_388_608
    sessions: Count = 100_000
    sessions_per_ip: OrOff = 5000
    sessions_per_user: OrOff = 5000
    new_sessions_per_minute_per_ip: OrOff = 3000
    delayed_closes: OrOff = 1000
    partial_bytes: OrOff = 268_435_456
    partial_bytes_per_ip: OrOff = 67_108_864
    partial_seconds: Seconds = 60.0
    state_bytes: OrOff = 536_870_912
    state_bytes_per_ip: OrOff = 134_217_728
    state_bytes_per_user: OrOff = 134_217_728
    state_bytes_per_session: OrOff = 50_331_648
    bindings_per_session: Count = 100_000
    addresses_per_request: Count = 100_000
    learned_routes_per_session: OrOff = 1000
    messages_per_post: Count = 10_000
    recipients_at_once: Count = 5000
    list_deliveries: Count = 10_000
    connections: Count = 20_000
    connections_per_ip: Count = 1000
    session_rate_messages: OrOff = 0
    session_rate_bytes: OrOff = 0
    ip_rate_messages: OrOff = 0
    ip_rate_bytes: OrOff = 0


class StorageOptions(Section):
    """
    Limits of what is written to disk, and how much of the disk is left alone.
    """

    reserve_bytes: OrOff = 256 * 1024 * 1024
    max_spool_bytes: Bytes = 4 * 1024 * 1024 * 1024
    max_spool_bytes_per_sender: OrOff = 1024 * 1024 * 1024
    max_traffic_line_bytes: Annotated[int, Meta(ge=16384)] = 32 * 1024
    max_traffic_bytes_per_hour: OrOff = 8 * 1024 * 1024 * 1024


class AllocationLimits(Section):
    """
    Addresses in one request.
    """

    per_request: Count = 1000


class PoolAddresses(Section):
    """
    A foreign pool: its scheme, and its addresses or a pattern of them.
    """

    scheme: str
    addresses: list[str] = []
    pattern: str = ""

    def all_addresses(self) -> list[str]:
        return self.addresses or expand(self.pattern)


class Routing(Section):
    """
    Options of routing: is a request to nobody answered 404?
    """

    reply_unknown: bool = False


class WebSocketOptions(Section):
    """
    Pings, and compression: of messages from how many bytes on (0: off), and what may come out of such.
    """

    ping_seconds: Seconds = 25.0
    compress_above_bytes: OrOff = 0
    inflated_bytes_per_second: OrOff = 16 * 1024 * 1024


def _decisions() -> str:
    return _below_user_data("decisions")


class PolicyOptions(Section):
    """
    Options of the policies: where they come from, and what is done with their decisions.
    """

    source: str = ""
    enforce: bool = True
    mark_auth: bool = True
    strict_obligations: bool = False
    default_connect: Effect = "permit"
    default_in: Effect = "permit"
    default_subscribe: Effect = "permit"
    default_out: Effect = "permit"
    refresh_seconds: Positive = 10.0
    deadline_seconds: Positive = 10.0
    max_bytes: Bytes = 64 * 1024 * 1024
    keep_versions: Count = 20
    managers: list[str] = []
    expose_reason: bool = False
    decision_log: str = field(default_factory=_decisions)
    permit_sample_rate: Share = 0.01
    hash_fields: list[Literal["from", "to", "session", "identity"]] = []


class IntrospectionOptions(Section):
    """
    Options of token introspection: where a provider is asked about opaque tokens, and who asks.

    Without `url` the provider's own discovery document says where.
    """

    client_id: str
    client_secret: str = ""
    client_secret_file: str = ""
    url: str = ""


class IdentityProvider(BackEndOptions, kw_only=True):
    """
    An OpenID provider whose tokens are believed.

    `audiences` are the clients and services a token may be meant for; `user_url`
    is what makes a user's address of a token's claims.  Without `jwks_uri` the
    provider's own discovery document says where its keys are.
    """

    domain: str
    issuer: str
    audiences: list[str]
    jwks_uri: str = ""
    algs: list[Algorithm] = field(default_factory=lambda: ["RS256", "ES256", "PS256", "EdDSA"])
    user_url: str = "user://{domain}/{email}"
    trust_email: bool = False
    client_id: str = ""
    redirect_uri: str = ""
    scopes: list[str] = field(default_factory=lambda: ["openid", "email", "profile"])
    introspection: IntrospectionOptions | None = None
    max_response_bytes: Bytes = 1024 * 1024


class IdentityOptions(Section):
    """
    Options of authentication: is a token wanted when a session opens, whose, and what happens when it ends?

    `message_identity`: what is done about the tokens that messages carry.
    `trust`: whose word policies take for who sends, the node's or the client's.
    """

    auth: Auth = "none"
    expiry_warning_seconds: Seconds = 60.0
    grace_seconds: Seconds = 30.0
    leeway_seconds: Seconds = 60.0
    devices: str = ""
    providers: list[IdentityProvider] = []
    trust: Trust = "verified"
    message_identity: MessageIdentity = "ignore"


class Listen(Section):
    """
    One listener; with `cert` (and `key`) it speaks TLS, with `client_ca` it asks for a client's certificate.
    """

    kind: Kind
    endpoint: str
    cert: str = ""
    key: str = ""
    client_ca: str = ""


def _below_user_data(name: str) -> str:
    from platformdirs import user_data_path

    return str(user_data_path("msgnode") / name)


def _traffic() -> str:
    return _below_user_data("traffic")


def _state() -> str:
    return _below_user_data("state")


def _node() -> str:
    return socket.gethostname()


class Config(Section):
    """
    Everything an operator can set.  etc/msgnode.toml explains each key.
    """

    domain: str = "localhost"
    node: str = field(default_factory=_node)
    web: list[str] | None = None
    lines: list[str] | None = None
    listen: list[Listen] = []
    traffic: str = field(default_factory=_traffic)
    traffic_log_always: bool = False
    state: str = field(default_factory=_state)
    sync: Sync = "normal"
    drain_seconds: Seconds = 10.0
    path_prefix: str = ""
    public_url: str = ""
    stubs: str = ""
    allowed_origins: list[str] | None = None
    trusted_proxies: list[str] = []
    admin: AdminOptions = field(default_factory=AdminOptions)
    session: SessionTimes = field(default_factory=SessionTimes)
    limits: Limits = field(default_factory=Limits)
    storage: StorageOptions = field(default_factory=StorageOptions)
    allocation: AllocationLimits = field(default_factory=AllocationLimits)
    pools: dict[str, PoolAddresses] = {}
    routing: Routing = field(default_factory=Routing)
    websocket: WebSocketOptions = field(default_factory=WebSocketOptions)
    identity: IdentityOptions = field(default_factory=IdentityOptions)
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    qos: QoSOptions = field(default_factory=QoSOptions)
    registry: RegistryOptions = field(default_factory=RegistryOptions)
    global_registry: GlobalRegistryOptions = field(default_factory=GlobalRegistryOptions)

    @property
    def origins(self) -> list[str]:
        """
        The origins whose pages may connect; all of them where the file says nothing.
        """
        return ["*"] if self.allowed_origins is None else self.allowed_origins

    def listeners(self) -> list[Listen]:
        """
        Every listener: the endpoint strings, the tables, and for a kind that has neither its default.
        """
        found: list[Listen] = []
        kinds: list[tuple[Kind, list[str] | str | None, int]] = [
            ("web", self.web, WEB),
            ("line", self.lines, LINE),
            ("admin", self.admin.listen, ADMIN),
        ]
        for kind, given, port in kinds:
            tables = [listen for listen in self.listen if listen.kind == kind]
            if given is None:
                given = [] if tables else [f"tcp:{port}:interface=127.0.0.1"]
            strings = [given] if isinstance(given, str) else given
            found += [Listen(kind=kind, endpoint=where) for where in strings if where != "none"] + tables
        return found
