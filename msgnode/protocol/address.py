"""
Addresses: parsing them, and the addresses that the node owns.

The hot path does not use this module: it compares addresses as opaque strings.
"""

import re

SESSION = "mn:/session"
NODES = "mn:/nodes"
SESSIONS = "mn:/sessions"
POLICY = "mn:/policy"
TOPICS = frozenset({NODES, SESSIONS, POLICY})  # addresses at which only the node itself publishes
MAX_ADDRESS_CHARS = 2048  # browsers and proxies accept no longer URL

_TOKEN = r"mn[sd]_[A-Za-z0-9_-]{43}"
_UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_LAST_SECRET = re.compile(rf"{_TOKEN}|{_UUID4}", re.IGNORECASE)
_HELD = re.compile(_TOKEN)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_PUBLISHED = ("/changes", "/registration", "/status")


def split_token(address: str) -> tuple[str, str]:
    """
    Split the `from` of a handshake into the runtimeURL and the secret.

    `runtime://d/1/<token>` has both. If the last segment is not a token, the secret is "".
    """
    runtime, _, secret = address.rpartition("/")
    if _LAST_SECRET.fullmatch(secret) and runtime and not runtime.endswith("/") and _has_path(runtime):
        return runtime, secret
    return address, ""


def _has_path(address: str) -> bool:
    _, separator, rest = address.partition("://")
    if not separator:
        # `hyperty:` alone would be a prefix of every hyperty:// address.
        return not address.rstrip("/").endswith(":")
    return bool(rest.partition("/")[2].strip("/"))


def holds_token(text: str) -> bool:
    """
    Does the text contain a token of the node, even inside a longer word?
    """
    return _HELD.search(text) is not None


def is_scheme(text: str) -> bool:
    """
    Is `text` a URI scheme (RFC 3986) in lower case?
    """
    return _SCHEME.fullmatch(text) is not None


def is_multicast(address: str) -> bool:
    """
    Is this a publication address, from which no reply is expected?
    """
    return address.endswith(_PUBLISHED) or "/children/" in address


_NODES = ("mn:", "global:", "domain://")  # the prefixes of addresses of nodes and servers
# Services of the domain, even if the node does not offer them.
_SERVICES = ("msg-node", "idm", "qos-broker", "registry")


class Domain:
    """
    The domain of the node, and the addresses that the node owns.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = f"domain://msg-node.{name}"
        self.public = f"runtime://{name}/public"  # prefix of the senders of requests without a session
        self._services = tuple(f"domain://{service}.{name.lower()}" for service in _SERVICES)
        self.also: frozenset[str] = frozenset()  # foreign addresses of the node

    def owns(self, address: str) -> bool:
        """
        Does the node itself answer at this address: `mn:`, `global:`, `domain://` of its domain?
        """
        if address.startswith(("mn:", "global:")) or address in self.also:
            return True
        if not address.startswith("domain://"):
            return False
        host = address[9:].partition("/")[0]
        return host == self.name or host.endswith("." + self.name)

    def claimed_by(self, from_: str) -> bool:
        """
        Does this sender claim to be the node, or a service of its domain?
        """
        if from_[:1] not in "mgdMGD":
            return from_ in self.also
        folded = from_.lower()  # other implementations compare scheme and host without case
        if not folded.startswith(_NODES):
            return from_ in self.also or folded in self.also
        if not folded.startswith("domain://"):
            return True
        return any(folded == service or folded.startswith(service + "/") for service in self._services)

    def can_open(self, runtime: str) -> bool:
        """
        May a client open a session with this runtimeURL?
        """
        if not runtime or len(runtime) > MAX_ADDRESS_CHARS or not _has_path(runtime) or self.owns(runtime):
            return False
        if holds_token(runtime):
            return False
        if runtime.lower().startswith(_NODES):  # the address of a node or a server, here or elsewhere
            return False
        return runtime != self.public and not runtime.startswith(self.public + "/")
