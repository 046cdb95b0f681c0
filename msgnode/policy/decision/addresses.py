"""
The parts of an address that policies see: scheme, host, domain, and the service it belongs to.

Scheme and host are compared without case. The port and `user@` are not part of the host.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from msgnode.protocol.address import MAX_ADDRESS_CHARS

Made = TypeVar("Made")

SERVICES = ("msg-node", "registry", "idm", "qos-broker")


def cached_by_address(function: Callable[..., Made]) -> Callable[..., Made]:
    """
    A decorator that caches results by address. Results for long addresses are not cached.
    """
    known = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def call(address: str, *others: str) -> Made:
        if not others and len(address) <= MAX_ADDRESS_CHARS:  # asked for each message
            return known(address)
        is_short = len(address) + sum(map(len, others)) <= MAX_ADDRESS_CHARS
        return (known if is_short else function)(address, *others)

    return call


@cached_by_address
def split(address: str) -> tuple[str, str]:
    """
    Scheme and host in lower case; "" if missing.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        return "", ""
    authority = _authority(rest).rpartition("@")[2]
    host, colon, port = authority.rpartition(":")
    if colon and (not port or (port.isascii() and port.isdigit())):
        authority = host
    return scheme.casefold(), authority.casefold()


def _authority(rest: str) -> str:
    for end in "/?#":
        rest = rest.partition(end)[0]
    return rest


def domain(host: str) -> str:
    """
    The domain of a host: a prefix that names the node or a service is removed.
    """
    service, dot, rest = host.partition(".")
    return rest if dot and service in SERVICES else host


@cached_by_address
def folded(address: str) -> str:
    """
    The address with scheme and host in lower case.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    length = len(_authority(rest))
    user, at, host = rest[:length].rpartition("@")
    return f"{scheme.casefold()}://{user}{at}{host.casefold()}{rest[length:]}"


_ALLOCATION = ("/address-allocation", "/hyperty-address-allocation", "/object-address-allocation")


def is_allocation(address: str) -> bool:
    """
    Is it an address at which a node allocates addresses?
    """
    return address.endswith(_ALLOCATION) and folded(address).startswith("domain://msg-node.")


ABOUT = (
    "registration",
    "addressAllocation",
    "discovery",
    "globalRegistry",
    "identityManagement",
    "dataSync",
    "p2pConnection",
)
_ENDINGS = (
    ("/address-allocation", "addressallocation"),
    ("/discovery/", "discovery"),
    ("/graph-connector", "globalregistry"),
    ("/idm", "identitymanagement"),
    ("/sm", "datasync"),
    ("/sm", "p2pconnection"),
    ("/ua", "p2pconnection"),
)


@cached_by_address
def message_types(from_: str, to: str) -> frozenset[str]:
    """
    The values of `msgType` for a message between two addresses: some of ABOUT, in lower case.
    """
    found = set()
    for address in (from_, to):
        if folded(address).startswith("domain://registry."):
            found.add("registration")
        found |= {about for ending, about in _ENDINGS if address.endswith(ending)}
    return frozenset(found)
