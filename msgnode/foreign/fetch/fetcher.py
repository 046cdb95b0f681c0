"""
The fetcher of stubs: at the domain itself, in this node's own directory, and in an older catalogue.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from msgnode.config.foreign import ForeignOptions, ForeignStub
from msgnode.foreign.fetch.catalogue import Catalogue
from msgnode.foreign.fetch.download import PORTS, Download, Guard
from msgnode.foreign.fetch.stub_code import MAX_DESCRIPTOR_BYTES, StubCode, Unusable

WELL_KNOWN = "/.well-known/protocolstub/default"
CODE, DESCRIPTOR = ".ps.js", ".ps.json"


class Fetcher(Protocol):
    """
    A source of stubs.
    """

    def fetch(self, domain: str, stub: ForeignStub | None, kept: StubCode | None) -> Deferred[StubCode]:
        """
        The stub of a domain; fails with Unusable, or with CancelledError if it is cancelled. `stub` is its
        table in the configuration, `kept` the copy that this node has.
        """


class Place(NamedTuple):
    """
    A place where the code of a stub may be, and the way to get it from there.
    """

    name: str
    fetch: Callable[[], Awaitable[StubCode]]


class StubFetcher:
    """
    The fetcher of stubs over HTTP, and from the directory of stubs that this node serves.

    `directory` names that directory, "" for none; `guard` makes the guard for places that are listed, in
    addition to all public ones, and for a listed domain ("" for another one). `run` reads files, perhaps in a
    thread.
    """

    def __init__(
        self,
        options: ForeignOptions,
        directory: Callable[[], str],
        guard: Callable[[list[str], str], Guard],
        reactor: Any,
        run: Callable[..., Deferred[Any]],
    ) -> None:
        self._options = options
        self._directory = directory
        self._guard = guard
        self._reactor = reactor
        self._run = run

    def fetch(self, domain: str, stub: ForeignStub | None, kept: StubCode | None) -> Deferred[StubCode]:
        def cancel(answer: Deferred[StubCode]) -> None:
            answer.errback(CancelledError())
            work.cancel()

        def give(result: StubCode | Failure) -> None:
            if not answer.called:
                answer.callback(result)  # type: ignore[arg-type]

        answer: Deferred[StubCode] = Deferred(cancel)
        work = Deferred.fromCoroutine(self._fetch(domain, stub, kept, lambda: bool(answer.called)))
        work.addBoth(give)
        return answer

    async def _fetch(
        self, domain: str, stub: ForeignStub | None, kept: StubCode | None, is_over: Callable[[], bool]
    ) -> StubCode:
        pin = stub.digest if stub is not None else ""
        failures: list[Unusable] = []
        for place in self._places(domain, stub, kept):
            try:
                return (await place.fetch()).check(self._options.max_code_bytes, pin)
            except Unusable as why:
                if is_over():
                    raise
                failures.append(why)
                if kept is not None and kept.source == place.name and not why.is_absent:
                    break  # it is away for now, and another place could have an older version
        raise Unusable("; ".join(map(str, failures))[:500], all(failure.is_absent for failure in failures))

    def _places(self, domain: str, stub: ForeignStub | None, kept: StubCode | None) -> list[Place]:
        listed = [*self._options.hosts, *(stub.hosts if stub is not None else ())]
        if stub is not None and stub.url:
            download = self._download([*listed, _host_port(stub.url)], domain)
            return [Place(stub.url, partial(self._files, download, domain, stub.url.removesuffix(CODE)))]
        download = self._download(listed, domain if stub is not None else "")
        base = f"https://{domain}{WELL_KNOWN}"
        catalogue = Catalogue(domain, download, self._options.max_code_bytes)
        path = Path(self._directory(), f"{domain}{CODE}")
        return [
            Place(f"{base}{CODE}", partial(self._files, download, domain, base)),
            Place(str(path), partial(self._local, domain, path)),
            Place(catalogue.url, partial(catalogue.fetch, kept)),
        ]

    def _download(self, listed: list[str], owner: str) -> Download:
        return Download(self._options, self._guard(listed, owner), self._reactor)

    async def _files(self, download: Download, domain: str, base: str) -> StubCode:
        code = await download.get(f"{base}{CODE}", self._options.max_code_bytes)
        descriptor = await download.get(f"{base}{DESCRIPTOR}", MAX_DESCRIPTOR_BYTES)
        return StubCode(domain, f"{base}{CODE}", code, descriptor)

    async def _local(self, domain: str, path: Path) -> StubCode:
        if not self._directory():
            raise Unusable("this node has no directory of stubs", is_absent=True)
        read = partial(_read_files, path, path.with_suffix(".json"), self._options.max_code_bytes)
        try:
            code, descriptor = await self._run(read)
        except FileNotFoundError:
            raise Unusable(f"there is no {path.name} in {path.parent}", is_absent=True) from None
        except OSError as why:
            raise Unusable(f"{path.name} in {path.parent} cannot be read: {why.strerror}") from None
        return StubCode(domain, str(path), code, descriptor)


def _read_files(code: Path, descriptor: Path, most: int) -> tuple[bytes, bytes]:
    """
    The content of both files, each up to one byte more than it may have.
    """
    with code.open("rb") as file:
        found = file.read(most + 1)
    with descriptor.open("rb") as file:
        return found, file.read(MAX_DESCRIPTOR_BYTES + 1)


def _host_port(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or PORTS[parts.scheme]}"
