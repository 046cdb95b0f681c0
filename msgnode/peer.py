"""
A peer's name in the logs: where a connection comes from.
"""

from collections.abc import Collection
from typing import Any


def peer_name(address: Any, forwarded: str = "", trusted: Collection[str] = ()) -> str:
    """
    `192.0.2.7:51234` for the address of a transport; `unix` for a UNIX socket.

    Behind a proxy that is trusted, the last address in `forwarded` (the
    X-Forwarded-For header) that is not itself a trusted proxy.
    """
    host = getattr(address, "host", None)
    if host is None:
        return "unix"
    if forwarded and host in trusted:
        for hop in reversed([part.strip() for part in forwarded.split(",")]):
            if hop and hop not in trusted:
                return hop
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
