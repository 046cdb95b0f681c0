"""
The name of a peer in the logs, and the host that limits per IP address count for.
"""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

IPNetwork = IPv4Network | IPv6Network
_MAPPED = IPv6Network("::ffff:0:0/96")


def peer_name(address: Any, forwarded: str = "", trusted: Collection[str] = ()) -> str:
    """
    The name of a transport's peer: `192.0.2.7:51234`, or `unix` for a UNIX socket.

    If the peer is a trusted proxy (`unix` may be one), the last address in `forwarded` (the X-Forwarded-For
    header) that is not itself a trusted proxy.
    """
    host = getattr(address, "host", None)
    if forwarded and (host or "unix") in trusted:
        for hop in reversed([part.strip() for part in forwarded.split(",")]):
            if hop and hop not in trusted:
                return hop
    if host is None:
        return "unix"
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"


def peer_host(peer: str, trusted: Collection[str] = ()) -> str:
    """
    The host of a peer, for limits per IP address; "" if there is no limit.

    UNIX sockets and trusted proxies are not limited: many clients are behind them. For IPv6, the host is the
    /64 network, since a client usually has all its addresses.
    """
    if peer == "unix":
        return ""
    if peer[:1] == "[":
        host = peer[1:].partition("]")[0]
    else:  # a proxy writes IPv6 addresses without brackets and port
        host = peer.partition(":")[0] if peer.count(":") == 1 else peer
    if host in trusted:
        return ""
    return _network(host) if ":" in host else host


def _network(host: str) -> str:
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


def ip_of(peer: str) -> IPv4Address | IPv6Address | None:
    """
    The IP address of a peer; None if it has none. A listener for IPv6 that takes IPv4, too, names a client
    `::ffff:192.0.2.7` (RFC 4291, 2.5.5.2): that is 192.0.2.7 here.
    """
    if peer[:1] == "[":
        peer = peer[1:].partition("]")[0]
    elif peer.count(":") == 1:
        peer = peer.partition(":")[0]
    try:
        address = ip_address(peer)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def network_of(text: str) -> IPNetwork:
    """
    The network, or the network of one IP address; an IPv4 one that is written as IPv6 is an IPv4 one. Raises
    ValueError.
    """
    network = ip_network(text, strict=False)
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        address = network.network_address.ipv4_mapped
        return IPv4Network((str(address), network.prefixlen - 96))
    return network
