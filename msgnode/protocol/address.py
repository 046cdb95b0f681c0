"""
The only reader of addresses; off the hot path, which compares whole strings.

An address is an opaque string to the node.  Three things are asked of it:
does it belong to the node itself, which runtime does a `from` name, and may a
runtime bear that name at all.
"""

import re

SESSION = "mn:/session"
MAX_ADDRESS_CHARS = 2048  # characters; browsers and proxies allow no longer URL either

_TOKEN = r"mn[sd]_[A-Za-z0-9_-]{43}"
_UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_LAST_SECRET = re.compile(rf"{_TOKEN}|{_UUID4}", re.IGNORECASE)
_HELD = re.compile(_TOKEN)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_PUBLISHED = ("/changes", "/registration", "/status")


def split_token(address: str) -> tuple[str, str]:
    """
    The runtimeURL and the secret in the `from` of a handshake.

    `runtime://d/1/<token>` gives both; without a last segment of that shape
    the secret is empty.
    """
    runtime, _, secret = address.rpartition("/")
    if _LAST_SECRET.fullmatch(secret) and runtime and not runtime.endswith("/") and _has_path(runtime):
        return runtime, secret
    return address, ""


def _has_path(address: str) -> bool:
    _, separator, rest = address.partition("://")
    if not separator:
        # `hyperty:` stands above every hyperty:// address at a `/` boundary.
        return not address.rstrip("/").endswith(":")
    return bool(rest.partition("/")[2].strip("/"))


def holds_token(text: str) -> bool:
    """
    Does a token of the node's stand anywhere in the text, perhaps in a longer word?
    """
    return _HELD.search(text) is not None


def is_scheme(text: str) -> bool:
    """
    Could `text` stand before the `://` of an address (RFC 3986, lower case)?
    """
    return _SCHEME.fullmatch(text) is not None


def is_multicast(address: str) -> bool:
    """
    Is this an address that is published to, so that nobody waits for an answer?
    """
    return address.endswith(_PUBLISHED) or "/children/" in address


_NODES = ("mn:", "global:", "domain://")  # what the names of nodes and servers begin with
_SERVICES = ("msg-node", "idm", "qos-broker", "registry")  # of the domain, whether the node has them or not


class Domain:
    """
    The node's own domain, and which addresses are the node's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = f"domain://msg-node.{name}"
        self.public = f"runtime://{name}/public"  # above the senders of requests without a session
        self._services = tuple(f"domain://{service}.{name.lower()}" for service in _SERVICES)
        self.also: frozenset[str] = frozenset()  # addresses of other schemes that the node answers for

    def owns(self, address: str) -> bool:
        """
        Does the node itself answer here: `mn:`, `global:`, `domain://` of this domain?
        """
        if address.startswith(("mn:", "global:")) or address in self.also:
            return True
        if not address.startswith("domain://"):
            return False
        host = address[9:].partition("/")[0]
        return host == self.name or host.endswith("." + self.name)

    def claimed_by(self, from_: str) -> bool:
        """
        Does this sender say it is the node, or a service of its domain?
        """
        if from_[:1] not in "mgdMGD":
            return from_ in self.also
        folded = from_.lower()  # others read a scheme and a host without regard to case
        if not folded.startswith(_NODES):
            return from_ in self.also or folded in self.also
        if not folded.startswith("domain://"):
            return True
        return any(folded == service or folded.startswith(service + "/") for service in self._services)

    def can_open(self, runtime: str) -> bool:
        """
        May a runtime bear this name?
        """
        if not runtime or len(runtime) > MAX_ADDRESS_CHARS or not _has_path(runtime) or self.owns(runtime):
            return False
        if holds_token(runtime):
            return False
        if runtime.lower().startswith(_NODES):  # a node's or a server's, here or elsewhere
            return False
        return runtime != self.public and not runtime.startswith(self.public + "/")
