"""
Where the code of a stub is looked for, over HTTP in memory.
"""

import json
from hashlib import sha256
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, maybeDeferred, succeed
from twisted.internet.error import DNSLookupError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from msgnode.config.foreign import ForeignOptions, ForeignStub
from msgnode.foreign.fetch.fetcher import StubFetcher
from msgnode.foreign.fetch.stub_code import StubCode, Unusable
from msgnode.foreign.proxy.guard import NotPermitted
from tests.support.back_ends import Memory
from tests.support.fakes import directory

BASE = "http://localhost:81/stubs/default"
CODE, DESCRIPTOR = b"System.register()", json.dumps({"configuration": {}}).encode()


class Files(Resource):
    """
    A web server that has these files, and redirects from others if there is a place.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.redirect = ""
        self.asked: list[str] = []

    def render_GET(self, request: Request) -> bytes:
        path = request.uri.decode()
        self.asked.append(path)
        if self.redirect:
            request.redirect(self.redirect.encode())
            return b""
        if path not in self.files:
            request.setResponseCode(404)
        return self.files.get(path, b"")


class MemoryGuard:
    """
    A guard that leads all hosts to one server, but for those that it refuses.
    """

    def __init__(self, wires: Memory, refused: tuple[str, ...] = ()) -> None:
        self.wires = wires
        self.refused = refused
        self.checked: list[tuple[str, int]] = []
        self.silent = False

    def check(self, host: str, port: int) -> Deferred[list[str]]:
        self.checked.append((host, port))
        if self.silent:  # as one that is resolved forever
            return Deferred(lambda found: found.errback(DNSLookupError("not found in time")))
        if host in self.refused:
            return fail(NotPermitted(f"{host}:{port} has the address 127.0.0.1, which is not public"))
        return succeed(["192.0.2.1"])

    def endpoint(self, host: str, port: int) -> Any:
        return self.wires


class FetcherTests(SynchronousTestCase):
    """
    Fetching
    """

    def setUp(self) -> None:
        self.clock, self.files = Clock(), Files()
        self.wires = Memory(self.clock, lambda: Site(self.files, reactor=self.clock).buildProtocol(None))
        self.guard = MemoryGuard(self.wires)
        self.listed: list[list[str]] = []
        self.stubs = ""
        self.options = ForeignOptions(accept="any", max_code_bytes=1000, hosts=["10.0.0.1:1"])
        self.fetcher = StubFetcher(
            self.options, lambda: self.stubs, self.make_guard, self.clock, maybeDeferred
        )

    def make_guard(self, listed: list[str], owner: str) -> MemoryGuard:
        self.listed.append(listed)
        return self.guard

    def fetch(self, url: str = BASE + ".ps.js", kept: StubCode | None = None, digest: str = "") -> Any:
        stub = ForeignStub(domain="b.example", url=url, hosts=["10.0.0.2:2"], digest=digest)
        fetched = self.fetcher.fetch("b.example", stub, kept)
        for _ in range(20):
            self.wires.pump()
        return fetched

    def test_code_and_descriptor_are_fetched(self) -> None:
        """
        The code is at the URL, and its descriptor next to it; the operator's places are permitted.
        """
        self.files.files = {"/stubs/default.ps.js": CODE, "/stubs/default.ps.json": DESCRIPTOR}

        code = self.successResultOf(self.fetch())

        self.assertEqual((CODE, DESCRIPTOR, BASE + ".ps.js"), (code.code, code.descriptor, code.source))
        self.assertEqual([["10.0.0.1:1", "10.0.0.2:2", "localhost:81"]], self.listed)

    def test_redirects_are_not_followed(self) -> None:
        """
        A redirect is no stub, wherever it leads.
        """
        self.files.redirect = "http://elsewhere.example/stubs/default.ps.js"

        why = self.failureResultOf(self.fetch(), Unusable).value

        self.assertIn("status 302", str(why))
        self.assertEqual(1, len(self.files.asked))

    def test_what_is_too_large_is_not_read(self) -> None:
        """
        Code beyond `max_code_bytes` is not taken.
        """
        self.files.files = {"/stubs/default.ps.js": b"x" * 5000, "/stubs/default.ps.json": DESCRIPTOR}

        self.assertIn("large", str(self.failureResultOf(self.fetch(), Unusable).value))

    def test_silent_server_is_left_after_a_deadline(self) -> None:
        """
        A server that does not answer in `fetch_seconds` has no stub.
        """
        self.wires.serve = Memory(self.clock).serve
        fetched = self.fetch()
        self.clock.advance(10)
        self.wires.pump()

        self.assertIn("silent", str(self.failureResultOf(fetched, Unusable).value))

    def test_refused_host_is_not_connected_to(self) -> None:
        """
        A host that the guard refuses is never dialled.
        """
        self.guard.refused = ("localhost",)

        why = self.failureResultOf(self.fetch(), Unusable).value

        self.assertIn("which is not public", str(why))
        self.assertEqual(0, self.wires.dialled)

    def test_order_of_places(self) -> None:
        """
        The domain is asked first, over https, then this node's directory, then the catalogue of the domain.
        """
        self.guard.refused = ("b.example", "catalogue.b.example")

        why = self.failureResultOf(self.fetch(url=""), Unusable).value

        self.assertEqual([("b.example", 443), ("catalogue.b.example", 443)], self.guard.checked)
        self.assertIn("this node has no directory of stubs", str(why))
        self.assertFalse(why.is_absent)

    def test_cancelled_fetch_asks_no_other_place(self) -> None:
        """
        A fetch that is cancelled ends as such, whatever it waits for, and leads nowhere else.
        """
        self.guard.silent = True
        for url in ("", BASE + ".ps.js"):
            fetched = self.fetch(url)
            fetched.cancel()

            self.failureResultOf(fetched, CancelledError)
        self.guard.silent = False
        self.wires.serve = Memory(self.clock).serve
        fetched = self.fetch()
        fetched.cancel()

        self.failureResultOf(fetched, CancelledError)
        self.assertEqual(["b.example", "localhost", "localhost"], [host for host, _ in self.guard.checked])
        self.assertEqual([], self.clock.getDelayedCalls())

    def local(self, code: bytes = CODE) -> str:
        """
        Puts a stub into the directory that this node serves; its path.
        """
        where = directory(self)
        self.stubs = str(where)
        (where / "b.example.ps.js").write_bytes(code)
        (where / "b.example.ps.json").write_bytes(DESCRIPTOR)
        return str(where / "b.example.ps.js")

    def test_place_of_the_kept_copy_is_waited_for(self) -> None:
        """
        While the place of the copy that this node has is away, no older copy of another place is taken.
        """
        self.local()
        self.guard.refused = ("b.example",)
        kept = StubCode("b.example", "https://b.example/.well-known/protocolstub/default.ps.js", CODE, b"{}")

        self.failureResultOf(self.fetch("", kept), Unusable)
        self.assertEqual(1, len(self.guard.checked))

    def test_copy_with_the_pinned_hash_is_looked_for_in_each_place(self) -> None:
        """
        A place that has other code than the pinned one is as good as none.
        """
        where = self.local(b"other code")
        other = sha256(b"other code").hexdigest()
        self.guard.refused = ("b.example", "catalogue.b.example")

        self.assertEqual(where, self.successResultOf(self.fetch("", digest=f"sha256:{other}")).source)
        why = self.failureResultOf(self.fetch("", digest=f"sha256:{'0' * 64}"), Unusable).value
        self.assertIn("which is not the pinned one; https://catalogue.b.example/", str(why))

    def test_own_directory(self) -> None:
        """
        A stub in the directory that this node serves is found without the network.
        """
        where = self.local()
        self.guard.refused = ("b.example",)

        code = self.successResultOf(self.fetch(url=""))

        self.assertEqual((CODE, DESCRIPTOR, where), (code.code, code.descriptor, code.source))
