"""
Checks of the admin listener: operators send their tokens to it, so other machines reach it over TLS only.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address

from msgnode.config.schema import Config

_WORD = re.compile(r"(?:[^:\\]|\\.)+")  # of an endpoint string; a backslash quotes a colon


def admin_mistakes(config: Config) -> Iterator[tuple[str, str]]:
    """
    The mistakes in what the configuration says of the admin listener.
    """
    if config.admin.insecure:
        return
    for listen in config.listeners():
        if listen.kind == "admin" and not listen.cert and is_open_to_others(listen.endpoint):
            yield (
                "admin.listen",
                f"found {listen.endpoint!r}: other machines could reach it without TLS, and operators send "
                "their tokens there; expected interface=127.0.0.1, a UNIX socket, or a [[listen]] table of "
                "kind admin with 'cert' and 'key' (admin.insecure = true allows it)",
            )


def is_open_to_others(endpoint: str) -> bool:
    """
    Does this endpoint string name a TCP port without TLS that other machines may reach? False of an endpoint
    that does not say it, such as `systemd:`.
    """
    kind, *words = _WORD.findall(endpoint.removeprefix("haproxy:")) or [""]
    if kind not in ("tcp", "tcp6"):
        return False
    named = [word.removeprefix("interface=") for word in words if word.startswith("interface=")]
    host = named[-1].replace("\\:", ":") if named else ""
    return host != "localhost" and not _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
