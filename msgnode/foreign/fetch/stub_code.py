"""
The code of a stub with its descriptor, and the checks before it may run.
"""

from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from msgnode.config.federation import pin_hash
from msgnode.protocol.errors import Rejected

MAX_DESCRIPTOR_BYTES = 256 * 1024
MAX_HOSTS = 20  # that a stub may connect to
MAX_NESTED = 10  # levels of a configuration that are searched for URLs
MAX_URLS = 1000  # of a configuration
MIN_PORT = 1024  # of a descriptor, but for those of HTTP: below are servers of other protocols
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


class Unusable(Rejected):
    """
    A stub that cannot be had, or may not run; the text says why. `is_absent`: there is none at that place.
    """

    def __init__(self, text: str, is_absent: bool = False) -> None:
        super().__init__(text, 502, "no-path")
        self.is_absent = is_absent


class StubCode(Struct, frozen=True):
    """
    The code and the descriptor of a domain's stub, and the URL that they came from.
    """

    domain: str
    source: str
    code: bytes
    descriptor: bytes

    @property
    def digest(self) -> str:
        """
        The SHA-256 hash of the code, as `sha256sum` prints it.
        """
        return sha256(self.code).hexdigest()

    @property
    def key(self) -> str:
        """
        A hash of domain, code and descriptor: another one is another version. Two domains that publish the
        same have two keys, so that neither can replace the copy of the other.
        """
        return sha256(b"\0".join((self.domain.encode(), self.code, self.descriptor))).hexdigest()

    @property
    def fields(self) -> dict[str, Any]:
        """
        The descriptor.
        """
        found: dict[str, Any] = msgspec.json.decode(self.descriptor)
        return found

    @property
    def version(self) -> str:
        """
        The version that the descriptor names; "" if it names none.
        """
        found = self.fields.get("version", "")
        return str(found)[:64] if isinstance(found, int | float | str) else ""

    def check(self, max_code_bytes: int, pin: str) -> "StubCode":
        """
        This stub, if its size, form and hash are as expected; else raises Unusable.
        """
        if not self.code or len(self.code) > max_code_bytes:
            raise Unusable(f"a stub has 1 to {max_code_bytes} bytes, this one {len(self.code)}")
        if len(self.descriptor) > MAX_DESCRIPTOR_BYTES:
            raise Unusable(f"a descriptor has at most {MAX_DESCRIPTOR_BYTES} bytes")
        try:
            self.code.decode()
            _configuration(msgspec.json.decode(self.descriptor))
        except (ValueError, RecursionError) as why:  # also msgspec.DecodeError and UnicodeDecodeError
            raise Unusable(f"the stub of {self.domain} is malformed: {str(why)[:200]}") from None
        if pin and pin_hash(pin).hex() != self.digest:
            raise Unusable(
                f"the stub of {self.domain} has the digest {self.digest}, which is not the pinned one"
            )
        return self

    def hosts(self, listed: tuple[str, ...]) -> tuple[str, ...]:
        """
        The places that it may connect to, `host:port` each: those of its descriptor that belong to its
        domain, and have a port of HTTP or above 1023, and the listed ones.
        """
        named = (
            place for place in islice(places(_configuration(self.fields)), MAX_URLS) if self._is_own(place)
        )
        return tuple(dict.fromkeys([*listed, *named]))[:MAX_HOSTS]

    def _is_own(self, place: str) -> bool:
        host, _, port = place.rpartition(":")
        return (int(port) >= MIN_PORT or port in ("80", "443")) and self._is_own_host(host)

    def _is_own_host(self, host: str) -> bool:
        return host == self.domain or host.endswith(f".{self.domain}")


def _configuration(descriptor: Any) -> dict[str, Any]:
    """
    The configuration in a descriptor, an object or a JSON text. ValueError if it is neither.
    """
    if not isinstance(descriptor, dict):
        raise ValueError("a descriptor is an object")
    found = descriptor.get("configuration", {})
    if isinstance(found, str):
        found = msgspec.json.decode(found) if found else {}
    if found == []:  # as catalogues have it that know of none
        return {}
    if not isinstance(found, dict):
        raise ValueError("'configuration' is an object")
    return found


def places(value: Any, depth: int = 0) -> Iterator[str]:
    """
    The `host:port` of each URL in a configuration.
    """
    if isinstance(value, str):
        yield from _place(value)
    elif depth < MAX_NESTED:
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from places(each, depth + 1)


def _place(text: str) -> list[str]:
    if "://" not in text[:10]:
        return []
    try:
        parts = urlsplit(text)
        port = parts.port or _PORTS.get(parts.scheme.lower(), 0)
    except ValueError:
        return []
    return [f"{parts.hostname}:{port}"] if parts.hostname and port else []
