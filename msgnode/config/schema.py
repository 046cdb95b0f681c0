"""
The schema of the configuration: one Struct, filled from the TOML file and the options.

Its types are the checks. loader.py rewrites their errors for operators.
"""

import socket
from typing import Annotated, Literal

from msgspec import Meta, field

from msgnode.config.address_range import expand
from msgnode.config.cluster import ClusterOptions
from msgnode.config.federation import FederationOptions, Peer
from msgnode.config.foreign import Connector, ConnectorOptions, ForeignOptions
from msgnode.config.objects import ObjectsOptions
from msgnode.config.sections import (
    BackEndOptions,
    Bytes,
    Count,
    GlobalRegistryOptions,
    OrOff,
    Positive,
    QoSOptions,
    RecordsOptions,
    RegistryOptions,
    Seconds,
    Section,
    Share,
)

Kind = Literal["web", "line", "admin", "node"]
Sync = Literal["normal", "full"]
Takeover = Literal["open", "token"]
FromCheck = Literal["off", "log", "refuse"]
MessageToken = Literal["off", "require"]
Trust = Literal["verified", "claimed"]
Effect = Literal["permit", "deny"]
MessageIdentity = Literal["ignore", "mark", "refuse"]
Leasers = Literal["anybody", "unverified", "verified"]
Auth = Literal["none", "optional", "required"]
# Symmetric algorithms are missing, for the node would have to share their secret; so is `none`.
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"
]

WEB, LINE, ADMIN = 9090, 9091, 9092

IDP = "devices"  # the provider name of device tokens, as policies see it


class ConfigError(Exception):
    """
    The configuration is invalid. The text names the key, what was expected and what was found.
    """


class AdminOptions(Section):
    """
    The admin listener, whether other machines may reach it without TLS, the host names that requests to it
    may use, whether traces may show bodies, the directory of backups ("": `backups` in the state directory),
    and how many of them are kept.
    """

    listen: str | None = None
    insecure: bool = False
    hosts: list[str] = []
    trace_bodies: bool = False
    open_metrics: bool = False
    audit_keep_days: Count = 400
    backup_dir: str = ""
    keep_backups: Count = 7


class SessionTimes(Section):
    """
    Limits of a session: its lifetime without a connection, the size of its queue, and takeover.
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
    flow_bytes: Bytes = 67_108_864
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
    event_streams: Count = 10_000
    event_streams_per_ip: Count = 200
    session_rate_messages: OrOff = 0
    session_rate_bytes: OrOff = 0
    ip_rate_messages: OrOff = 0
    ip_rate_bytes: OrOff = 0
    shared: bool = False


class StorageOptions(Section):
    """
    Limits of what is written to disk, and how much disk space is left free.
    """

    reserve_bytes: OrOff = 256 * 1024 * 1024
    max_spool_bytes: Bytes = 4 * 1024 * 1024 * 1024
    max_spool_bytes_per_sender: OrOff = 1024 * 1024 * 1024
    max_traffic_line_bytes: Annotated[int, Meta(ge=16384)] = 32 * 1024
    max_traffic_bytes_per_hour: OrOff = 8 * 1024 * 1024 * 1024
    traffic_keep_days: Annotated[int, Meta(ge=0, le=36500)] = 0
    traffic_compress: bool = False


class AllocationLimits(Section):
    """
    Limits of address allocation.
    """

    per_request: Count = 1000


class PoolAddresses(Section):
    """
    A foreign pool: its scheme, its addresses or a pattern of them, the clients that may lease them, and how
    many of them one session.
    """

    scheme: str
    clients: Leasers = field(name="for", default="anybody")
    addresses: list[str] = []
    pattern: str = ""
    per_session: OrOff = 0

    def all_addresses(self) -> list[str]:
        return self.addresses or expand(self.pattern)


class Routing(Section):
    """
    Options of routing: whether a request to an address without a session is answered 404.
    """

    reply_unknown: bool = False


class WebSocketOptions(Section):
    """
    Options of WebSocket: pings, and compression of messages from `compress_above_bytes` on (0: off).
    """

    ping_seconds: Seconds = 25.0
    compress_above_bytes: OrOff = 0
    inflated_bytes_per_second: OrOff = 16 * 1024 * 1024


class PerformanceOptions(Section):
    """
    Options of performance. `native`: messages are carried by the compiled data plane, where it can.

    `gather`: it waits a little for more messages where reads hold several small ones.
    """

    native: bool = True
    gather: bool = True


def _decisions() -> str:
    return _below_user_data("decisions")


class PolicyOptions(Section):
    """
    Options of policies: their source, their defaults, and the decision log.
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
    Options of token introspection (RFC 7662): the endpoint for opaque tokens, and the node's client
    credentials.

    Without `url`, the provider's discovery document names the endpoint.
    """

    client_id: str
    client_secret: str = ""
    client_secret_file: str = ""
    url: str = ""


class IdentityProvider(BackEndOptions, kw_only=True):
    """
    An OpenID provider whose tokens are accepted.

    `audiences` are the clients and services a token may be issued for. `user_url` is the template of a user's
    address, filled from the claims of the token. Without `jwks_uri`, the discovery document names the keys.
    `client_id` is the client of the login page, and with its secret, if it has one, of the token endpoint.
    """

    domain: str
    issuer: str
    audiences: list[str]
    jwks_uri: str = ""
    algs: list[Algorithm] = field(default_factory=lambda: ["RS256", "ES256", "PS256", "EdDSA"])
    user_url: str = "user://{domain}/{email}"
    trust_email: bool = False
    client_id: str = ""
    client_secret: str = ""
    client_secret_file: str = ""
    redirect_uri: str = ""
    scopes: list[str] = field(default_factory=lambda: ["openid", "email", "profile"])
    introspection: IntrospectionOptions | None = None
    max_response_bytes: Bytes = 1024 * 1024


class IdentityOptions(Section):
    """
    Options of authentication: whether a session needs a token, from which providers, and what happens when it
    expires.

    `message_identity`: what is done about identity tokens in messages. `trust`: whether policies see the
    authenticated identity of a sender, or the one that its messages claim.
    `token_keys_file` has the keys that seal refresh tokens on disk.
    """

    auth: Auth = "none"
    expiry_warning_seconds: Seconds = 60.0
    grace_seconds: Seconds = 30.0
    leeway_seconds: Seconds = 60.0
    devices: str = ""
    token_keys_file: str = ""
    max_refresh_tokens: Count = 10_000
    max_device_logins: Count = 1000
    device_login_seconds: Positive = 900.0
    providers: list[IdentityProvider] = []
    trust: Trust = "verified"
    message_identity: MessageIdentity = "ignore"


class Listen(Section):
    """
    A listener. With `cert` (and `key`) it uses TLS; with `client_ca` it requires a client certificate.

    A listener for other nodes always uses TLS, with the certificate of `federation`. With `reuse_port` other
    nodes on this machine may listen on the same port.
    """

    kind: Kind
    endpoint: str
    cert: str = ""
    key: str = ""
    client_ca: str = ""
    reuse_port: bool = False


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
    The whole configuration. etc/msgnode.toml explains each key.
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
    performance: PerformanceOptions = field(default_factory=PerformanceOptions)
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    qos: QoSOptions = field(default_factory=QoSOptions)
    registry: RegistryOptions = field(default_factory=RegistryOptions)
    global_registry: GlobalRegistryOptions = field(default_factory=GlobalRegistryOptions)
    records: RecordsOptions = field(default_factory=RecordsOptions)
    objects: ObjectsOptions = field(default_factory=ObjectsOptions)
    federation: FederationOptions = field(default_factory=FederationOptions)
    peer: list[Peer] = []
    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    foreign: ForeignOptions = field(default_factory=ForeignOptions)
    connectors: dict[Connector, ConnectorOptions] = {}

    @property
    def origins(self) -> list[str]:
        """
        The origins whose web pages may connect. All, if the key is not set.
        """
        return ["*"] if self.allowed_origins is None else self.allowed_origins

    def listeners(self) -> list[Listen]:
        """
        The listeners for clients and operators: endpoint strings, tables, and the default endpoint of each
        kind that has neither.
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

    def node_listeners(self) -> list[Listen]:
        """
        The listeners for other nodes. There is none by default.
        """
        where = self.federation.listen
        strings = [Listen(kind="node", endpoint=where)] if where not in ("", "none") else []
        return strings + [listen for listen in self.listen if listen.kind == "node"]
