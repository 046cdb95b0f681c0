"""
`/.well-known/protocolstub`: the stub, its descriptor, the catalogue, and stubs of other domains.
"""

import gzip
import hashlib
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.config.schema import ConfigError
from msgnode.connectors.http.protostub import StubCatalogue
from tests.support.http_client import HTTPClient, Response
from tests.support.network import Network

WHERE = "/.well-known/protocolstub"
STUB = Path(__file__).parents[3] / "msgnode" / "stub"


class Base(SynchronousTestCase):
    """
    A node whose web listener is asked.
    """

    def ask(self, name: str, method: str = "GET", prefix: str = "", **headers: str) -> Response:
        if not hasattr(self, "net"):
            self.node()
        return HTTPClient(self.net).request(method, f"{prefix}{WHERE}/{name}", **headers)

    def node(self, **sections: Any) -> None:
        self.net = Network(state="none", **sections)

    def url(self, **asked: str) -> str:
        url: str = self.ask("default.ps.json", **asked).json()["configuration"]["url"]
        return url


class FileTests(Base):
    """
    What browsers load.
    """

    def test_three_stub_files_are_served_to_every_origin(self) -> None:
        """
        The three files are those of the package, for pages of every origin.
        """
        for name, kind in (
            ("default.ps.js", "text/javascript; charset=utf-8"),
            ("default.mjs", "text/javascript; charset=utf-8"),
            ("default.d.mts", "text/plain; charset=utf-8"),
        ):
            response = self.ask(name)

            self.assertEqual(200, response.status)
            self.assertEqual((STUB / name).read_bytes(), response.body)
            self.assertEqual(kind, response.headers["Content-Type"])
            self.assertEqual("*", response.headers["Access-Control-Allow-Origin"])
            self.assertEqual("nosniff", response.headers["X-Content-Type-Options"])

    def test_descriptor(self) -> None:
        """
        The descriptor has what runtimes read, and the limits the stub keeps to.
        """
        self.node(public_url="https://mn.example.org/", limits={"message_bytes": 1000})

        response = self.ask("default.ps.json")

        expected = {
            "language": "javascript",
            "description": "Protostub for example.org",
            "signature": "",
            "configuration": {"url": "wss://mn.example.org/ws", "maxBuffer": 2000, "maxMessage": 1000},
            "constraints": {"browser": True},
            "interworking": False,
            "objectName": "default",
        }
        self.assertEqual(expected, response.json())
        self.assertEqual("application/json", response.headers["Content-Type"])

    def test_stub_is_told_to_send_the_message_token(self) -> None:
        """
        A node that wants the token in every message tells the stub to put it there.
        """
        self.node(session={"message_token": "require"})

        self.assertIs(True, self.ask("default.ps.json").json()["configuration"]["token"])

    def test_there_is_nothing_else(self) -> None:
        """
        There is nothing else: no source, no directory, no way out of it.
        """
        for name in (
            "",
            "activate.js",
            "src/session.js",
            "other.ps.js",
            "__init__.py",
            "default.ps.js/",
            "a/b.ps.js",
        ):
            self.assertEqual(404, self.ask(name).status, name)

    def test_head_has_the_headers_of_get_options_lets_other(self) -> None:
        """
        HEAD has the headers of GET, OPTIONS lets other origins ask, and nothing can be written.
        """
        got, head, options = (self.ask("default.ps.js", method) for method in ("GET", "HEAD", "OPTIONS"))

        self.assertEqual((200, b""), (head.status, head.body))
        for name in ("Content-Type", "Content-Length", "ETag"):
            self.assertEqual(got.headers[name], head.headers[name])
        self.assertEqual((204, b""), (options.status, options.body))
        self.assertIn("GET", options.headers["Access-Control-Allow-Methods"])
        self.assertEqual("Content-Type", options.headers["Access-Control-Allow-Headers"])
        put = self.ask("default.ps.js", "PUT")
        self.assertEqual((405, "GET, HEAD, POST, OPTIONS"), (put.status, put.headers["Allow"]))


class CachingTests(Base):
    """
    Asked for anew each time, sent only when it changed.
    """

    def test_unchanged_stub_is_not_sent_again(self) -> None:
        """
        Who has the file is told so, however a proxy has written its tag.
        """
        first = self.ask("default.ps.js")
        tag = first.headers["ETag"]

        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = self.ask("default.ps.js", If_None_Match=known)
            self.assertEqual((304, b""), (again.status, again.body))
            self.assertEqual(tag, again.headers["ETag"])
            self.assertEqual("*", again.headers["Access-Control-Allow-Origin"])
        self.assertEqual(200, self.ask("default.ps.js", If_None_Match='"other"').status)
        self.assertEqual("no-cache", first.headers["Cache-Control"])

    def test_descriptor_with_another_url_has_another_tag(self) -> None:
        """
        A descriptor with another URL has another tag.
        """
        first = self.ask("default.ps.json").headers["ETag"]

        other = self.ask("default.ps.json", Host="other.example.org", If_None_Match=first)

        self.assertEqual(200, other.status)

    def test_stub_is_gzipped_under_a_tag_of_its_own(self) -> None:
        """
        Packed for who can read it, under a tag of its own.
        """
        plain = self.ask("default.ps.js")
        packed = self.ask("default.ps.js", Accept_Encoding="br, gzip")

        self.assertEqual("gzip", packed.headers["Content-Encoding"])
        self.assertEqual(plain.body, gzip.decompress(packed.body))
        self.assertNotEqual(plain.headers["ETag"], packed.headers["ETag"])
        self.assertLess(len(packed.body), 6000)
        self.assertEqual("Accept-Encoding", plain.headers["Vary"])
        self.assertIsNone(self.ask("default.ps.js", Accept_Encoding="gzip;q=0").headers["Content-Encoding"])


class PublicURLTests(Base):
    """
    The URL in the descriptor: the configured one, else the one that was asked.
    """

    def test_every_way_to_write_it_is_understood(self) -> None:
        """
        Every way to write it is understood.
        """
        for given in ("https://mn.example.org/a", "wss://mn.example.org/a/"):
            self.node(public_url=given)
            self.assertEqual("wss://mn.example.org/a/ws", self.url(Host="elsewhere"))
        self.node(public_url="http://127.0.0.1:9090")
        self.assertEqual("ws://127.0.0.1:9090/ws", self.url())

    def test_what_is_no_url_and_a_directory_that_is_not_there(self) -> None:
        """
        What is no URL, and a directory that is not there, are told at the start.
        """
        for key, wrong in (
            ("public_url", "mn.example.org"),
            ("public_url", "https://x/?a"),
            ("stubs", "/nowhere"),
        ):
            with self.assertRaises(ConfigError) as told:
                check({key: wrong}, "test")
            self.assertIn(f"test: {key}: expected", str(told.exception))

    def test_as_asked(self) -> None:
        """
        Without one it is the host and the prefix that were asked; what is no host is not repeated.
        """
        self.node(path_prefix="/msgnode")

        self.assertEqual("ws://127.0.0.1:9090/ws", self.url(Host="127.0.0.1:9090"))
        self.assertEqual("ws://[::1]:9090/ws", self.url(Host="[::1]:9090"))
        self.assertEqual("ws://d/msgnode/ws", self.url(Host="d", prefix="/msgnode"))
        self.assertEqual("ws://example.org/ws", self.url(Host='evil"/x'))

    def test_stub_url_believes_a_trusted_proxy(self) -> None:
        """
        What a proxy says of the outside is believed if it is trusted.
        """
        told = {"Host": "127.0.0.1", "X_Forwarded_Proto": "https", "X_Forwarded_Host": "mn.example.org"}

        self.assertEqual("ws://127.0.0.1/ws", self.url(**told))
        self.node(trusted_proxies=["192.0.2.1"])
        self.assertEqual("wss://mn.example.org/ws", self.url(**told))


class CatalogueTests(Base):
    """
    What runtimes before 0.18 ask.
    """

    def test_version_and_cguid_in_plain_text_and_a_descriptor(self) -> None:
        """
        Version and cguid in plain text, and a descriptor with the code in it, for GET and POST.
        """
        version, cguid = self.ask("default/version"), self.ask("default/cguid")
        entry = self.ask("default", "POST").json()

        self.assertEqual(entry, self.ask("default").json())
        self.assertEqual("text/plain; charset=utf-8", version.headers["Content-Type"])
        self.assertEqual((entry["version"], entry["cguid"]), (int(version.body), cguid.body.decode()))
        self.assertEqual("ProtoStubs", entry["type"])
        self.assertEqual("/sourcePackage", entry["sourcePackageURL"])
        self.assertEqual(entry["sourcePackage"], self.ask("default/sourcePackage").json())
        self.assertEqual((STUB / "activate.js").read_text(), entry["sourcePackage"]["sourceCode"])

    def test_version(self) -> None:
        """
        The version rises when the public URL changes, so that nobody keeps the old one.
        """
        config = check({}, "test")
        stubs = StubCatalogue(config, now=lambda: 1000.0)
        self.assertEqual(1000, stubs.version)

        config.public_url = "https://new.example.org"

        self.assertEqual([1001, 1001], [stubs.version, stubs.version])


class DirectoryTests(Base):
    """
    What an operator has put beside it.
    """

    def setUp(self) -> None:
        self.top = Path(tempfile.mkdtemp())
        directory = self.top / "stubs"
        directory.mkdir()
        (directory / "other.net.ps.js").write_text("System.register([], () => {})")
        (directory / "other.net.ps.json").write_text("{}")
        (directory / "notes.txt").write_text("mine")
        (directory / ".hidden.ps.js").write_text("mine")
        (self.top / "secret.ps.js").write_text("mine")
        self.directory = directory
        self.node(stubs=str(directory))

    def test_foreign(self) -> None:
        """
        Stubs of other domains are served, with their tags, and follow their files.
        """
        first = self.ask("other.net.ps.js")
        self.assertEqual((200, b"System.register([], () => {})"), (first.status, first.body))
        self.assertIn(hashlib.sha256(first.body).hexdigest()[:24], first.headers["ETag"])
        self.assertEqual({}, self.ask("other.net.ps.json").json())

        (self.directory / "other.net.ps.js").write_text("new")

        self.assertEqual(b"new", self.ask("other.net.ps.js", If_None_Match=first.headers["ETag"]).body)

    def test_instead_of_ours(self) -> None:
        """
        The operator may put another stub in the place of the node's own.
        """
        (self.directory / "default.ps.js").write_text("theirs")

        self.assertEqual(b"theirs", self.ask("default.ps.js").body)

    def test_nothing_else(self) -> None:
        """
        No other file can be had, by no way of writing its name.
        """
        for name in (
            "notes.txt",
            ".hidden.ps.js",
            "../secret.ps.js",
            "..%2fsecret.ps.js",
            "%2e%2e/secret.ps.js",
            "..%5csecret.ps.js",
            "/etc/passwd",
            "other.net.ps.js%00",
            "stubs/other.net.ps.js",
        ):
            self.assertEqual(404, self.ask(name).status, name)
