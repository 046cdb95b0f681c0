"""
Mistakes in the configuration of back ends, and in the file of devices.
"""

from hashlib import sha256
from typing import Any

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cli.main import main
from msgnode.config.loader import check
from msgnode.config.schema import ConfigError
from msgnode.sessions.access.device_tokens import DeviceTokens, line, make_token
from tests.support.fakes import directory
from tests.support.openid import provider


class MistakesTests(SynchronousTestCase):
    """
    Each is told with the key, what was expected and what was found.
    """

    def assertMistake(self, words: str, **sections: Any) -> None:
        with self.assertRaises(ConfigError) as raised:
            check(sections, "x")
        self.assertIn(words, str(raised.exception))

    def one(self, words: str, **options: Any) -> None:
        self.assertMistake(words, identity={"providers": [provider(**options)]})

    def test_https_issuer_is_good_and_one_on_this_machine(self) -> None:
        """
        An https issuer is good, and one on this machine without TLS.
        """
        for issuer in ("https://id.example.org/realms/main", "http://localhost:8080", "http://127.0.0.1:1/x"):
            check({"identity": {"auth": "required", "providers": [provider(issuer=issuer)]}}, "x")

    def test_issuer_keys_need_https(self) -> None:
        """
        Keys that come in plain text could be anybody's.
        """
        for url in (
            "http://id.example.org",
            "id.example.org",
            "",
            "ftp://id",
            "https://a@b",
            "https://a?b",
            "https://[",
            "https://id:99999",
            "https://id:0",
            "https://id/a b",
            "https://id/a\n",
        ):
            self.one("identity.providers[0].issuer: expected an https URL", issuer=url)
            if url:
                self.one("identity.providers[0].jwks_uri: expected an https URL", jwks_uri=url)

    def test_provider(self) -> None:
        """
        Audiences, algorithms and the user's address have to make sense.
        """
        for audiences in ([], [""]):
            self.one("audiences: expected one or more", audiences=audiences)
        for domain in ("", "a b", "a/b", "devices"):
            self.one("identity.providers[0].domain: expected a name such as example.org", domain=domain)
        self.one("identity.providers[0].key: expected 'cert' with 'key'", key="key.pem")
        self.one("algs: expected at least one", algs=[])
        for alg in ("none", "HS256", "rs256"):
            self.one("identity.providers[0].algs[0]: expected 'RS256'", algs=[alg])
        for template in (
            "user://{name}",
            "user://{domain}",
            "user://x",
            "user://{email!r}",
            "user://{email",
            "{}",
        ):
            self.one("user_url: expected", user_url=template)
        self.one("identity.providers[0].isuer: unknown key; did you mean 'issuer'?", isuer="x")

    def test_introspection_needs_name_secret_and_https(self) -> None:
        """
        Who asks a provider about tokens has a name and a secret there, and sends it nowhere in plain text.
        """
        key = "identity.providers[0].introspection"
        good = {"client_id": "msgnode", "client_secret": "s3cret"}
        check({"identity": {"providers": [provider(introspection=good)]}}, "x")
        for words, options in (
            (".client_id: is missing", {"client_secret": "s3cret"}),
            (".client_id: expected the name of this node", {**good, "client_id": ""}),
            (".url: expected an https URL", {**good, "url": "http://id.example.org/introspect"}),
            (".url: expected an https URL", {**good, "url": "https://id.example.org/a?b"}),
            (": expected either 'client_secret' or", {"client_id": "msgnode"}),
            (": expected either 'client_secret' or", {**good, "client_secret_file": "/x"}),
            (".secret: unknown key; did you mean 'client_secret'?", {**good, "secret": "x"}),
            (": expected a table, found 'https://x'", "https://x"),
        ):
            self.one(f"{key}{words}", introspection=options)

    def test_secret_is_not_repeated(self) -> None:
        """
        Neither a complaint about a secret nor `msgnode check --json` shows it.
        """
        wrong = "client_secret: expected a string, found another"
        self.one(wrong, introspection={"client_id": "msgnode", "client_secret": 31337})
        path = directory(self) / "node.toml"
        table = 'client_id = "msgnode"\nclient_secret = "s3cret"\n'
        head = '[[identity.providers]]\ndomain = "d"\nissuer = "https://i"\naudiences = ["a"]\n'
        path.write_text(f"{head}[identity.providers.introspection]\n{table}")

        result = CliRunner().invoke(main, ["check", "--json", str(path)])

        self.assertIn('"client_id": "msgnode"', result.output)
        self.assertNotIn("s3cret", result.output)

    def test_no_error_shows_a_secret(self) -> None:
        """
        Whatever is wrong with it, and wherever it is: a password in a URL, a number in the place of a secret.
        """
        for table in (
            {"registry": {"url": "http://user:SECRETPW@"}},
            {"registry": {"url": "ftp://user:SECRETPW@[h"}},
            {"qos": {"url": ["http://user:SECRETPW@h"]}},
            {"public_url": "x://user:SECRETPW@h"},
            {"qos": {"turn_secret": 12345678}},
            {"cluster": {"url": ["nats://h"], "user": "u", "password": ["SECRETPW"]}},
            {"cluster": [{"password": "SECRETPW"}]},
            {"cluster": {"url": ["http://u:SECRETPW@h:1"], "token": "SECRETPW"}},
        ):
            wrong = str(self.assertRaises(ConfigError, check, table, "x"))
            self.assertNotIn("SECRETPW", wrong)
            self.assertNotIn("12345678", wrong)

    def test_check_says_when_a_secret_file_cannot_be_read(self) -> None:
        """
        `msgnode check` says when the file of a secret cannot be read.
        """
        path = directory(self) / "node.toml"
        table = 'client_id = "msgnode"\nclient_secret_file = "/nowhere/secret"\n'
        head = '[[identity.providers]]\ndomain = "d"\nissuer = "https://i"\naudiences = ["a"]\n'
        path.write_text(f"{head}[identity.providers.introspection]\n{table}")

        result = CliRunner().invoke(main, ["check", str(path)])

        self.assertEqual(2, result.exit_code)
        self.assertIn("client_secret_file: /nowhere/secret: cannot be read", result.output)

    def test_two_providers_may_share_neither_issuer_nor_domain(self) -> None:
        """
        Two providers may share neither issuer nor domain.
        """
        other = provider(domain="other.example.org")
        self.assertMistake("its own", identity={"providers": [provider(), other]})
        other = provider(issuer="https://other.example.org")
        self.assertMistake("its own", identity={"providers": [provider(), other]})

    def test_tokens_are_not_wanted_where_nobody_could_have_one(self) -> None:
        """
        Tokens are not wanted where nobody could have one.
        """
        for auth in ("optional", "required"):
            self.assertMistake("expected providers or devices", identity={"auth": auth})
        listen = [{"kind": "web", "endpoint": "tcp:1", "cert": "c", "client_ca": "ca"}]
        check({"identity": {"auth": "required"}, "listen": listen}, "x")

    def test_broker_needs_a_url_and_an_account(self) -> None:
        """
        A broker has a URL, and we an account with it.
        """
        self.assertMistake("qos.url: expected", qos={"url": "qos.example.org", "csp": "x"})
        for url in ("https://qos:99999", "https://[::1"):
            self.assertMistake("qos.url: expected", qos={"url": url, "csp": "x"})
        self.assertMistake("qos.key: expected 'cert'", qos={"key": "key.pem"})
        self.assertMistake("qos.connectivity: expected", qos={"connectivity": "http://a?b"})
        self.assertMistake("qos.csp: expected", qos={"url": "https://qos.example.org"})


class DevicesTests(SynchronousTestCase):
    """
    The file.
    """

    def setUp(self) -> None:
        self.path = directory(self) / "devices"

    def read(self, text: str) -> Any:
        self.path.write_text(text)
        return DeviceTokens(str(self.path)).read()

    def test_made_device_token_fits_its_line_only(self) -> None:
        """
        `msgnode token` makes a token that its line knows, and no other.
        """
        result = CliRunner().invoke(main, ["token", "device://example.org/lamp"])
        secret, text = (row.partition(":")[2].strip() for row in result.output.splitlines())
        devices = DeviceTokens("")
        devices.use(self.read(f"{text}\n"))

        self.assertEqual("device://example.org/lamp", devices.find(secret).user)
        self.assertIsNone(devices.find(make_token()))
        self.assertEqual(2, CliRunner().invoke(main, ["token", "a b"]).exit_code)

    def test_line_that_is_wrong_is_named(self) -> None:
        """
        A line that is wrong is named; what stands in it is not repeated, as it may be a secret.
        """
        good = line("x", "a")
        for number, text in ((1, "mnd_secret a"), (2, f"{good}\nmnd_secret"), (3, f"#\n{good}\n{good}")):
            with self.assertRaises(ConfigError) as raised:
                self.read(text)
            self.assertIn(f"line {number}:", str(raised.exception))
            self.assertNotIn("secret", str(raised.exception))

    def test_file_that_is_not_there_stops_the_start_and_msgnode(self) -> None:
        """
        A file that is not there stops the start, and `msgnode check` says so.
        """
        config = directory(self) / "node.toml"
        config.write_text(f'[identity]\nauth = "required"\ndevices = "{self.path}"\n')

        result = CliRunner().invoke(main, ["check", str(config)])

        self.assertEqual(2, result.exit_code)
        self.assertIn("identity.devices", result.output)
        self.assertIn("No such file", result.output)

    def test_token_hash_may_be_in_capitals(self) -> None:
        """
        A hash may be written in capitals, as some tools do.
        """
        digest = sha256(b"mnd_x").hexdigest().upper()
        devices = DeviceTokens("")
        devices.use(self.read(f"{digest} a\n"))

        self.assertEqual("a", devices.find("mnd_x").user)
