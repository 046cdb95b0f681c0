"""
What a policy sees of an address: scheme, host, and what it is about.

Scheme and host are compared without regard to case; a port and `user@` are
no part of the host.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from msgnode.protocol.address import MAX_ADDRESS_CHARS

Made = TypeVar("Made")

SERVICES = ("msg-node", "registry", "idm", "qos-broker")


def remembered(function: Callable[..., Made]) -> Callable[..., Made]:
    """
    The function, with what it made of the addresses of late; of none that is long.
    """
    known = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def call(*addresses: str) -> Made:
        return known(*addresses) if sum(map(len, addresses)) <= MAX_ADDRESS_CHARS else function(*addresses)

    return call


@remembered
def split(address: str) -> tuple[str, str]:
    """
    Scheme and host, in lower case; empty where there is none.
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
    The domain that a host of its node or of a service beside it stands for.
    """
    service, dot, rest = host.partition(".")
    return rest if dot and service in SERVICES else host


@remembered
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


@remembered
def message_types(from_: str, to: str) -> frozenset[str]:
    """
    What a message between these addresses is about; of ABOUT, in lower case.
    """
    found = set()
    for address in (from_, to):
        if folded(address).startswith("domain://registry."):
            found.add("registration")
        found |= {about for ending, about in _ENDINGS if address.endswith(ending)}
    return frozenset(found)
