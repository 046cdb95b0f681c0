"""
The name of a peer in the logs, and the host that limits per IP address count for.
"""

from collections.abc import Collection
from ipaddress import IPv6Address
from typing import Any


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
