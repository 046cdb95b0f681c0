"""
The fetcher of stubs: at the domain itself, in this node's own directory, and in an older catalogue.

Each request has a deadline and follows no redirect. It connects only to addresses that the guard permits.
"""

from base64 import b64decode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint

from msgnode.backends.http_client import BackendClient, Unanswered
from msgnode.config.foreign import ForeignOptions, ForeignStub
from msgnode.config.sections import BackEndOptions
from msgnode.foreign.fetch.stub_code import MAX_DESCRIPTOR_BYTES, StubCode, Unusable
from msgnode.foreign.proxy.guard import bounded
from msgnode.protocol.errors import Rejected

WELL_KNOWN = "/.well-known/protocolstub/default"
CODE, DESCRIPTOR = ".ps.js", ".ps.json"
_PORTS = {"http": 80, "https": 443}
_NOT_THERE = frozenset({404, 410})


class Guard(Protocol):
    """
    The guard of connections to places that other people name.
    """

    def check(self, host: str, port: int) -> Deferred[list[str]]:
        """
        The addresses of the host that may be connected to; fails if there is none.
        """

    def endpoint(self, host: str, port: int) -> IStreamClientEndpoint:
        """
        An endpoint that connects to these addresses only.
        """


class Fetcher(Protocol):
    """
    A source of stubs.
    """

    def fetch(self, domain: str, stub: ForeignStub | None) -> Deferred[StubCode]:
        """
        The stub of a domain, unchecked; fails with Unusable. `stub` is its table in the configuration.
        """


class StubFetcher:
    """
    The fetcher of stubs over HTTP, and from the directory of stubs that this node serves.

    `directory` names that directory, "" for none; `guard` makes the guard for places that are listed, in
    addition to all public ones. `run` reads files, perhaps in a thread.
    """

    def __init__(
        self,
        options: ForeignOptions,
        directory: Callable[[], str],
        guard: Callable[[list[str]], Guard],
        reactor: Any,
        run: Callable[..., Deferred[Any]],
    ) -> None:
        self._options = options
        self._directory = directory
        self._guard = guard
        self._reactor = reactor
        self._run = run

    def fetch(self, domain: str, stub: ForeignStub | None) -> Deferred[StubCode]:
        return Deferred.fromCoroutine(self._fetch(domain, stub))

    async def _fetch(self, domain: str, stub: ForeignStub | None) -> StubCode:
        if stub is not None and stub.url:
            guard = self._guard([*self._options.hosts, *stub.hosts, _place(stub.url)])
            return await self._files(guard, domain, stub.url.removesuffix(CODE))
        guard = self._guard([*self._options.hosts, *(stub.hosts if stub is not None else ())])
        failures = []
        for source in (
            partial(self._files, guard, domain, f"https://{domain}{WELL_KNOWN}"),
            partial(self._local, domain),
            partial(self._catalogue, guard, domain),
        ):
            try:
                return await source()
            except Unusable as why:
                failures.append(why)
        raise Unusable("; ".join(map(str, failures))[:500], all(failure.is_absent for failure in failures))

    async def _files(self, guard: Guard, domain: str, base: str) -> StubCode:
        code = await self._get(guard, f"{base}{CODE}", self._options.max_code_bytes)
        return StubCode(
            domain, f"{base}{CODE}", code, await self._get(guard, f"{base}{DESCRIPTOR}", MAX_DESCRIPTOR_BYTES)
        )

    async def _local(self, domain: str) -> StubCode:
        where = self._directory()
        if not where:
            raise Unusable("this node has no directory of stubs", is_absent=True)
        path = Path(where, f"{domain}{CODE}")
        read = partial(_read_files, path, path.with_suffix(".json"), self._options.max_code_bytes)
        try:
            code, descriptor = await self._run(read)
        except OSError:
            raise Unusable(f"there is no {path.name} in {where}", is_absent=True) from None
        return StubCode(domain, str(path), code, descriptor)

    async def _catalogue(self, guard: Guard, domain: str) -> StubCode:
        url = f"https://catalogue.{domain}{WELL_KNOWN}"
        data = await self._get(guard, url, 2 * self._options.max_code_bytes + MAX_DESCRIPTOR_BYTES)
        return read_catalogue(domain, url, data)

    async def _get(self, guard: Guard, url: str, most: int) -> bytes:
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}"
        options = self._options
        try:
            await guard.check(parts.hostname or "", parts.port or _PORTS[parts.scheme])
        except Exception as why:
            raise Unusable(f"{url}: {why}", is_absent=True) from None
        limits = BackEndOptions(
            deadline_seconds=options.fetch_seconds, attempts=1, max_response_bytes=most, ca=options.ca
        )
        dial = bounded(guard.endpoint, most)
        client = BackendClient(base, limits, self._reactor, f"stub server at {base}", dial=dial)
        try:
            response = await client.request("GET", parts.path)
        except Unanswered as why:
            raise Unusable(f"{url}: {why.outcome}", why.outcome == "unreachable") from None
        except Rejected as why:
            raise Unusable(f"{url}: {why}") from None
        if response.status != 200:
            raise Unusable(f"{url}: status {response.status}", response.status in _NOT_THERE)
        return response.content


class SourcePackage(Struct):
    """
    The package of a stub in a catalogue.
    """

    sourceCode: str
    encoding: str = ""


class CatalogueEntry(Struct):
    """
    An entry of a catalogue: the fields that are used. All others are skipped, however many they are.
    """

    sourcePackage: SourcePackage
    configuration: Raw = Raw(b"{}")
    version: int | float | str = ""


def read_catalogue(domain: str, url: str, data: bytes) -> StubCode:
    """
    The stub in an entry of a catalogue. Unusable if there is none.
    """
    try:
        entry = msgspec.json.decode(data, type=CatalogueEntry)
        code = source_code(entry.sourcePackage)
    except (ValueError, RecursionError) as why:
        raise Unusable(f"the catalogue of {domain} is malformed: {str(why)[:200]}") from None
    descriptor = {"configuration": entry.configuration, "version": entry.version}
    return StubCode(domain, url, code, msgspec.json.encode(descriptor))


def source_code(package: SourcePackage) -> bytes:
    """
    The code in a package of a catalogue. ValueError if it is no base64.
    """
    code = package.sourceCode
    return b64decode(code, validate=True) if package.encoding == "base64" else code.encode()


def _read_files(code: Path, descriptor: Path, most: int) -> tuple[bytes, bytes]:
    """
    The content of both files, each up to one byte more than it may have.
    """
    with code.open("rb") as file:
        found = file.read(most + 1)
    with descriptor.open("rb") as file:
        return found, file.read(MAX_DESCRIPTOR_BYTES + 1)


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
