"""
The catalogue of an older domain, over HTTP in memory.
"""

import json
from base64 import b64encode
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from msgnode.backends.http_client import BackendClient, Response
from msgnode.config.foreign import ForeignOptions
from msgnode.config.sections import BackEndOptions
from msgnode.foreign.fetch.catalogue import Catalogue
from msgnode.foreign.fetch.download import Download
from msgnode.foreign.fetch.stub_code import StubCode, Unusable
from tests.foreign.test_fetcher import MemoryGuard
from tests.support.back_ends import Memory

BASE = "https://catalogue.b.example/.well-known/protocolstub/default"
ELSEWHERE = "https://catalogue.b.example/.well-known/sourcepackage/1"
ENTRY: dict[str, Any] = {
    "version": 3,
    "configuration": {"url": "wss://x"},
    "sourcePackage": {"sourceCode": "code"},
}


class MemoryDownload(Download):
    """
    A download from a server that has these contents by method and URL.
    """

    def __init__(self, contents: dict[tuple[str, str], Any]) -> None:
        clock = Clock()
        super().__init__(ForeignOptions(), MemoryGuard(Memory(clock)), clock)
        self._client = BackendClient(BASE, BackEndOptions(), clock)
        self.contents = contents
        self.asked: list[tuple[str, str, Any]] = []

    async def request(self, method: str, url: str, most: int, json: Any = None) -> Response:
        self.asked.append((method, url, json))
        content = self.contents.get((method, url))
        return Response(404 if content is None else 200, Headers(), encoded(content or ""), self._client)


def encoded(content: Any) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content).encode()


class CatalogueTests(SynchronousTestCase):
    """
    What is asked of a catalogue, and what is made of its entries.
    """

    def fetch(self, kept: StubCode | None = None, **contents: Any) -> Any:
        """
        The stub in a catalogue that answers so: `get` and `post` to the URL of the entry, the others below.
        """
        known = {"get": ("GET", BASE), "post": ("POST", BASE), "elsewhere": ("GET", ELSEWHERE)}
        self.download = MemoryDownload(
            {known.get(name, ("GET", f"{BASE}/{name}")): content for name, content in contents.items()}
        )
        return Deferred.fromCoroutine(Catalogue("b.example", self.download, 1000).fetch(kept))

    def test_stub_for_browsers_is_asked_for(self) -> None:
        """
        A catalogue with several entries of the name has one for the sandbox; one that has no constraints is
        asked for its only entry.
        """
        code = self.successResultOf(self.fetch(post=ENTRY))

        self.assertEqual([("POST", BASE, {"constraints": {"browser": True}})], self.download.asked)
        self.assertEqual((b"code", "3", BASE), (code.code, code.version, code.source))
        self.assertEqual(b"code", self.successResultOf(self.fetch(get=ENTRY)).code)

    def test_entry_is_fetched_when_its_version_changes(self) -> None:
        """
        Of an entry that this node has, the version alone is asked for.
        """
        kept = self.successResultOf(self.fetch(post=ENTRY))

        self.assertIs(kept, self.successResultOf(self.fetch(kept, version=b"3\n", post=ENTRY)))
        self.assertEqual([("GET", f"{BASE}/version", None)], self.download.asked)
        changed = {**ENTRY, "version": "4", "sourcePackage": {"sourceCode": "new"}}
        answers: tuple[dict[str, Any], ...] = ({"version": b"4"}, {})
        for version in answers:
            found = self.successResultOf(self.fetch(kept, post=changed, **version))

            self.assertEqual((b"new", "4"), (found.code, found.version))

    def test_forms_of_the_package(self) -> None:
        """
        The code is a text, or base64; its package an object, a text of JSON, or at a URL of the domain.
        """
        base64 = {"sourceCode": b64encode(b"code").decode(), "encoding": "base64"}
        cases: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
            (ENTRY, {}),
            ({"sourcePackage": base64}, {}),
            ({"sourcePackage": json.dumps(base64)}, {}),
            ({"sourcePackageURL": "/sourcePackage"}, {"sourcePackage": base64}),
            ({"sourcePackageURL": ELSEWHERE}, {"elsewhere": base64}),
            ({"sourcePackageURL": ELSEWHERE.replace("https", "hyperty-catalogue")}, {"elsewhere": base64}),
        )
        for entry, more in cases:
            code = self.successResultOf(self.fetch(post=entry, **more))

            self.assertEqual(b"code", code.check(100, "").code)

    def test_package_of_another_domain_is_refused(self) -> None:
        """
        No entry leads the node to another host, or to another port.
        """
        for url in (
            "https://c.example/x",
            "https://notb.example/x",
            "http://b.example/x",
            "https://b.example:8080/x",
            "https://[::1]/x",
            "https://[/x",
        ):
            why = self.failureResultOf(self.fetch(post={"sourcePackageURL": url}), Unusable)

            self.assertIn("the catalogue of b.example is malformed", str(why.value))
            self.assertEqual(1, len(self.download.asked))

    def test_deployed_entries(self) -> None:
        """
        A list without elements in the place of the configuration is none.
        """
        entry = {**ENTRY, "configuration": [], "constraints": [], "dataObjects": [], "version": "1.0"}

        code = self.successResultOf(self.fetch(post=entry)).check(100, "")

        self.assertEqual(((), "1.0"), (code.hosts(()), code.version))

    def test_an_entry_of_many_fields_costs_little(self) -> None:
        """
        Fields that are not used are skipped, and do not count as the descriptor.
        """
        many = ",".join(f'"f{number}":[[],[],[]]' for number in range(50_000))
        data = f'{{{many},"sourcePackage":{{"sourceCode":"code"}}}}'.encode()

        code = self.successResultOf(self.fetch(post=data))

        self.assertEqual(b"code", code.check(100, "").code)
        self.assertLess(len(code.descriptor), 100)

    def test_malformed_entries(self) -> None:
        """
        An entry without code is told in words.
        """
        for entry in (
            b"[",
            b"[" * 100_000,
            {"sourcePackage": {"sourceCode": 5}},
            {"sourcePackage": "{"},
            {"sourcePackage": {"sourceCode": "%", "encoding": "base64"}},
            {"ERROR": "there is none"},
        ):
            self.failureResultOf(self.fetch(post=entry), Unusable)
