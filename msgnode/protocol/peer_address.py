"""
A peer's name in the logs, where a connection comes from; and its host, which limits go by.
"""

from collections.abc import Collection
from ipaddress import IPv6Address
from typing import Any


def peer_name(address: Any, forwarded: str = "", trusted: Collection[str] = ()) -> str:
    """
    `192.0.2.7:51234` for the address of a transport; `unix` for a UNIX socket.

    Behind a proxy that is trusted (`unix` may be one), the last address in `forwarded` (the
    X-Forwarded-For header) that is not itself a trusted proxy.
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
    Whom a limit by address holds for: the host of a peer's name; "" for nobody.

    A UNIX socket is nobody, and so is a trusted proxy: all the world is behind
    it.  Of an IPv6 address the first half counts: whoever has one address of a
    network has them all.
    """
    if peer == "unix":
        return ""
    if peer[:1] == "[":
        host = peer[1:].partition("]")[0]
    else:  # without brackets a proxy's IPv6 address has no port
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
