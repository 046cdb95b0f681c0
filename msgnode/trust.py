"""
What is wrong with the configuration of back ends that the node trusts.

Each mistake is a key, and what was expected and found.
"""

import re
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from msgnode.backendoptions import BackEnd, QoSOptions
from msgnode.config import IDP, IdentityOptions, IntrospectionOptions

# What may stand in a provider's user_url.
USER_CLAIMS = ("domain", "email", "sub", "preferred_username")
PLACEHOLDER = "{(" + "|".join(USER_CLAIMS) + ")}"


def wrong_identity(options: IdentityOptions, certificates: bool) -> Iterator[tuple[str, str]]:
    if options.auth != "none" and not (options.providers or options.devices or certificates):
        yield (
            "identity.auth",
            f"expected providers or devices beside {options.auth!r}: nobody could show a token",
        )
    if options.message_identity != "ignore" and not options.providers:
        expected = f"expected providers beside {options.message_identity!r}: no token could be good"
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
            yield f"{key}.audiences", "expected at least one: tokens for others must not open doors here"
        if not provider.algs:
            yield f"{key}.algs", "expected at least one"
        named = re.findall(PLACEHOLDER, provider.user_url)
        rest = re.sub(PLACEHOLDER, "", provider.user_url)
        if not set(named) - {"domain"} or "{" in rest or "}" in rest:
            known = ", ".join(f"{{{name}}}" for name in USER_CLAIMS)
            yield (
                f"{key}.user_url",
                f"expected one of {known} that tells users apart, found {provider.user_url!r}",
            )
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


def _wrong_key(key: str, options: BackEnd) -> Iterator[tuple[str, str]]:
    if options.key and not options.cert:
        yield f"{key}.key", "expected 'cert' beside 'key'"


def wrong_qos(options: QoSOptions) -> Iterator[tuple[str, str]]:
    yield from _wrong_key("qos", options)
    for name in ("url", "connectivity"):
        url = getattr(options, name)
        if url and not (re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url) and _split(url)):
            yield f"qos.{name}", f"expected an http or https URL, found {url!r}"
    if options.url and not options.csp:
        yield "qos.csp", "expected the name of this domain's account beside 'url'"


def is_safe_url(url: str) -> bool:
    """
    An https URL; plain http only to this machine.
    """
    parts = _split(url)
    if parts is None or parts.query or parts.fragment or parts.username is not None or not parts.hostname:
        return False
    return parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    )


def _split(url: str) -> SplitResult | None:
    """
    Its parts; None if nobody could be called there.
    """
    try:
        parts = urlsplit(url)
        usable = parts.port != 0 and not re.search(r"[\s\x00-\x1f\x7f]", url)
    except ValueError:
        return None
    return parts if usable else None
