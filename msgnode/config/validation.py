"""
Validation that types cannot express: single values, and combinations of values.

An error is a pair: the key, and a text with the expected and the found value.
"""

import re
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from msgnode.config.address_range import MAX_ADDRESSES, expand
from msgnode.config.admin_checks import admin_mistakes
from msgnode.config.cluster import cluster_mistakes
from msgnode.config.federation_checks import federation_mistakes
from msgnode.config.foreign import foreign_mistakes
from msgnode.config.objects import objects_mistakes
from msgnode.config.schema import IDP, Config, IdentityOptions, IntrospectionOptions, PoolAddresses
from msgnode.config.sections import BackEndOptions, QoSOptions
from msgnode.protocol.address import Domain, is_scheme

Mistakes = Iterator[tuple[str, str]]

BASE_URLS = "http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH"


def cross_checks(config: Config) -> Mistakes:
    for check in CHECKS:
        yield from check(config)


def _names(config: Config) -> Mistakes:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:\d+)?", config.domain):
        yield "domain", f"expected a domain name such as example.org, found {config.domain!r}"
    if not config.node:
        yield "node", "expected a name, found ''"


def _sizes(config: Config) -> Mistakes:
    message, queue, memory = (
        config.limits.message_bytes,
        config.session.queue_bytes,
        config.session.max_memory_bytes,
    )
    if queue < message:
        yield "session.queue_bytes", f"expected at least limits.message_bytes ({message}), found {queue}"
    if memory < queue:
        yield "session.max_memory_bytes", f"expected at least session.queue_bytes ({queue}), found {memory}"


def _strangers(config: Config) -> Mistakes:
    for proxy in config.trusted_proxies:
        if proxy != "unix" and not _is_ip(proxy):
            yield "trusted_proxies", f"expected IP addresses, or unix, found {proxy!r}"
    for origin in config.origins:
        if origin != "*" and not re.fullmatch(r"(?!\w+://.*/)[\w+.-]+://\S+|null", origin):
            yield "allowed_origins", f"expected origins such as https://app.example.org, found {origin!r}"


def _policy(config: Config) -> Mistakes:
    source = config.policy.source
    scheme = source.partition("://")[0] if "://" in source else ""
    if scheme and scheme not in ("http", "https"):
        yield "policy.source", f"expected a file, a directory, an https address or push, found {source!r}"


def _directories(config: Config) -> Mistakes:
    given = {
        "policy.decision_log": config.policy.decision_log,
        "traffic": config.traffic,
        "state": config.state,
    }
    for key, directory in given.items():
        if not directory:
            yield key, "expected a directory or 'none', found ''"


def _registries(config: Config) -> Mistakes:
    for name, registry in (("registry", config.registry), ("global_registry", config.global_registry)):
        url = registry.url
        if url not in ("embedded", "none") and (not _is_base_url(url) or re.match(r"http\S*\s", url)):
            yield f"{name}.url", f"expected 'embedded', 'none', {BASE_URLS}, found {url!r}"
        if registry.key and not registry.cert:
            yield f"{name}.key", "expected 'cert' with 'key'"


def _web(config: Config) -> Mistakes:
    if config.path_prefix and not re.fullmatch(r"(/[^/?#\s]+)+", config.path_prefix):
        yield "path_prefix", f"expected a path such as /msgnode, found {config.path_prefix!r}"
    if config.public_url and not re.fullmatch(r"(https?|wss?)://[^/?#\s]+(/[^?#\s]*)?", config.public_url):
        yield "public_url", f"expected a URL such as https://mn.example.org, found {config.public_url!r}"
    for host in config.admin.hosts:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", host):
            yield "admin.hosts", f"expected names of hosts such as mn.example.org, found {host!r}"
    if config.stubs and not Path(config.stubs).is_dir():
        yield "stubs", f"expected a directory, found {config.stubs!r}"


def _pools(config: Config) -> Mistakes:
    schemes: dict[str, str] = {}
    for name, pool in config.pools.items():
        other = schemes.setdefault(pool.scheme, name)
        if other != name:
            found = f"found {pool.scheme!r} as in pools.{other}"
            yield f"pools.{name}.scheme", f"expected a scheme of its own, {found}"
        yield from _pool(f"pools.{name}", pool, Domain(config.domain))


def _pool(key: str, pool: PoolAddresses, domain: Domain) -> Mistakes:
    if not is_scheme(pool.scheme):
        yield f"{key}.scheme", f"expected a URL scheme such as sip, found {pool.scheme!r}"
    if bool(pool.addresses) == bool(pool.pattern):
        yield key, "expected either 'addresses' or 'pattern'"
    twice = [address for address, count in Counter(pool.addresses).items() if count > 1]
    if twice:
        yield f"{key}.addresses", f"expected each address once, found {twice[0]!r} again"
    if len(pool.addresses) > MAX_ADDRESSES:
        yield f"{key}.addresses", f"expected at most {MAX_ADDRESSES}, found {len(pool.addresses)}"
    if pool.pattern:
        try:
            expand(pool.pattern)
        except ValueError as why:
            yield f"{key}.pattern", str(why)
            return
    foreign = [address for address in pool.all_addresses() if not address.startswith(f"{pool.scheme}:")]
    if foreign:
        yield key, f"expected addresses that begin {pool.scheme}:, found {foreign[0]!r}"
    owned = [address for address in pool.all_addresses() if domain.owns(address)]
    if owned:
        yield key, f"expected addresses that are not the node's own, found {owned[0]!r}"


def _trust(config: Config) -> Mistakes:
    certificates = any(listen.client_ca for listen in config.listen)
    yield from wrong_identity(config.identity, certificates)
    yield from wrong_qos(config.qos)


def _listeners(config: Config) -> Mistakes:
    for number, listen in enumerate(config.listen):
        if not listen.cert and (listen.key or listen.client_ca):
            yield f"listen[{number}]", "expected 'cert' with 'key' or 'client_ca'"
        if listen.reuse_port and not listen.endpoint.startswith("tcp:"):
            found = f"expected an endpoint that begins tcp:, with 'reuse_port', found {listen.endpoint!r}"
            yield f"listen[{number}].endpoint", found
        if listen.reuse_port and listen.kind == "admin":
            yield (
                f"listen[{number}].reuse_port",
                "expected false: an operator asks one node, not any of several",
            )


def _cluster(config: Config) -> Mistakes:
    yield from cluster_mistakes(config.cluster, config.domain, config.node, config.pools, config.objects.keep)


def _objects(config: Config) -> Mistakes:
    yield from objects_mistakes(config.objects, config.domain, config.state != "none")


def _foreign(config: Config) -> Mistakes:
    yield from foreign_mistakes(config.foreign, config.connectors, config.peer, config.domain)


# The checks, in this order. Only the first error is reported.
CHECKS = (
    *(_names, _sizes, _strangers, _policy, _directories, _registries, _web, _pools, _trust, _listeners),
    admin_mistakes,
    federation_mistakes,
    _cluster,
    _foreign,
    _objects,
)


def _is_base_url(url: str) -> bool:
    """
    Is this the base URL of a back end?
    """
    if url.startswith("unix:/"):
        return True
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(right) and not (parts.query or parts.fragment or parts.username)


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


# The claims that a provider's user_url may use.
USER_CLAIMS = ("domain", "email", "sub", "preferred_username")
PLACEHOLDER = "{(" + "|".join(USER_CLAIMS) + ")}"


def wrong_identity(options: IdentityOptions, certificates: bool) -> Iterator[tuple[str, str]]:
    if options.auth != "none" and not (options.providers or options.devices or certificates):
        yield (
            "identity.auth",
            f"expected providers or devices with {options.auth!r}: no client could have a token",
        )
    if options.message_identity != "ignore" and not options.providers:
        expected = f"expected providers with {options.message_identity!r}: no token could be valid"
        yield "identity.message_identity", expected
    seen: set[str] = set()
    for number, provider in enumerate(options.providers):
        key = f"identity.providers[{number}]"
        for name in ("issuer", "jwks_uri"):
            url = getattr(provider, name)
            if (url or name == "issuer") and not is_safe_url(url):
                yield f"{key}.{name}", f"expected an https URL (http on this machine only), found {url!r}"
        yield from _wrong_key(key, provider)
        if not re.fullmatch(r"[^\s/?#%{}]+", provider.domain) or provider.domain == IDP:
            expected = f"expected a name such as example.org, not {IDP!r}"
            yield f"{key}.domain", f"{expected}, found {provider.domain!r}"
        if not provider.audiences or "" in provider.audiences:
            yield f"{key}.audiences", "expected one or more: tokens issued to others must not be accepted"
        if not provider.algs:
            yield f"{key}.algs", "expected at least one"
        named = re.findall(PLACEHOLDER, provider.user_url)
        rest = re.sub(PLACEHOLDER, "", provider.user_url)
        if not set(named) - {"domain"} or "{" in rest or "}" in rest:
            known = ", ".join(f"{{{name}}}" for name in USER_CLAIMS)
            yield (
                f"{key}.user_url",
                f"expected one of {known} that identifies a user, found {provider.user_url!r}",
            )
        if provider.client_secret and provider.client_secret_file:
            yield key, "expected either 'client_secret' or 'client_secret_file'"
        if provider.introspection is not None:
            yield from _wrong_introspection(f"{key}.introspection", provider.introspection)
        for value in (provider.issuer, provider.domain):
            if value in seen:
                yield key, f"expected an issuer and a domain of its own, found {value!r} again"
            seen.add(value)


def _wrong_introspection(key: str, options: IntrospectionOptions) -> Iterator[tuple[str, str]]:
    if options.url and not is_safe_url(options.url):
        yield f"{key}.url", f"expected an https URL (http on this machine only), found {options.url!r}"
    if not options.client_id:
        yield f"{key}.client_id", "expected the name of this node at the provider, found ''"
    if bool(options.client_secret) == bool(options.client_secret_file):
        yield key, "expected either 'client_secret' or 'client_secret_file'"


def _wrong_key(key: str, options: BackEndOptions) -> Iterator[tuple[str, str]]:
    if options.key and not options.cert:
        yield f"{key}.key", "expected 'cert' with 'key'"


def wrong_qos(options: QoSOptions) -> Iterator[tuple[str, str]]:
    yield from _wrong_key("qos", options)
    if options.url == "embedded":
        yield from _wrong_embedded_broker(options)
    for name in ("url", "connectivity"):
        url = getattr(options, name)
        if url == "embedded" and name == "url":
            continue
        if url and not (re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url) and _split(url)):
            yield f"qos.{name}", f"expected an http or https URL, found {url!r}"
    if options.url not in ("", "embedded") and not options.csp:
        yield "qos.csp", "expected the name of this domain's account with 'url'"


def _wrong_embedded_broker(options: QoSOptions) -> Iterator[tuple[str, str]]:
    if not options.turn_urls or not all(re.fullmatch(r"turns?:\S+", url) for url in options.turn_urls):
        found = options.turn_urls
        yield "qos.turn_urls", f"expected URLs such as turn:turn.example.org:3478, found {found!r}"
    if bool(options.turn_secret) == bool(options.turn_secret_file):
        yield "qos", "expected either 'turn_secret' or 'turn_secret_file' with the embedded broker"
    if not re.fullmatch(r"[\w.-]+:\d{1,5}", options.cli):
        yield "qos.cli", f"expected a host and a port such as 127.0.0.1:5766, found {options.cli!r}"


def is_safe_url(url: str) -> bool:
    """
    Is this an https URL, or an http URL of this machine?
    """
    parts = _split(url)
    if parts is None or parts.query or parts.fragment or parts.username is not None or not parts.hostname:
        return False
    return parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    )


def _split(url: str) -> SplitResult | None:
    """
    The parts of a URL; None if it is malformed.
    """
    try:
        parts = urlsplit(url)
        usable = parts.port != 0 and not re.search(r"[\s\x00-\x1f\x7f]", url)
    except ValueError:
        return None
    return parts if usable else None
