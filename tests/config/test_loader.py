"""
The configuration: defaults, what the file and the options say, and what a mistake is told.
"""

import re
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import RENAMED, check, load
from msgnode.config.schema import Config, ConfigError, IdentityProvider, Listen
from msgnode.config.sections import Factor, Section, Share
from tests.support.fakes import directory


class ConfigTests(SynchronousTestCase):
    """
    Files and tables.
    """

    def file(self, text: str) -> str:
        path = directory(self) / "node.toml"
        path.write_text(text)
        return str(path)

    def wrong(self, table: dict[str, Any]) -> str:
        """
        What a mistake in this table is told, behind the name of the file.
        """
        why = str(self.assertRaises(ConfigError, check, table, "node.toml"))
        self.assertTrue(why.startswith("node.toml: "), why)
        self.assertNotIn("\n", why)
        return why[11:]


class DefaultTests(ConfigTests):
    """
    What holds when nobody says anything.
    """

    def test_defaults_are_those_of_the_documentation(self) -> None:
        """
        The defaults are those of the documentation.
        """
        config = load()

        mebi = 1024 * 1024
        for expected, found in (
            ("localhost", config.domain),
            (86400, config.session.expiry_seconds),
            (60, config.session.anonymous_expiry_seconds),
            (60, config.session.unused_expiry_seconds),
            (10, config.session.open_deadline_seconds),
            (1000, config.session.queue_messages),
            (8 * mebi, config.session.queue_bytes),
            (mebi, config.session.unsent_bytes),
            (256 * mebi, config.session.max_memory_bytes),
            ("open", config.session.takeover),
            (60, config.session.takeover_after_seconds),
            ("off", config.session.from_check),
            ("off", config.session.message_token),
            (8_388_608, config.limits.message_bytes),
            (20_000, config.limits.connections),
            (1000, config.limits.connections_per_ip),
            (0, config.limits.session_rate_messages),
            (0, config.limits.session_rate_bytes),
            (0, config.limits.ip_rate_messages),
            (0, config.limits.ip_rate_bytes),
            ("normal", config.sync),
            (10, config.drain_seconds),
            (100_000, config.limits.sessions),
            (100_000, config.limits.bindings_per_session),
            (100_000, config.limits.addresses_per_request),
            (1000, config.limits.learned_routes_per_session),
            (5000, config.limits.recipients_at_once),
            (10_000, config.limits.list_deliveries),
            (1000, config.allocation.per_request),
            ({}, config.pools),
            (False, config.routing.reply_unknown),
            (25, config.websocket.ping_seconds),
            (0, config.websocket.compress_above_bytes),
            ("", config.path_prefix),
            ([], config.trusted_proxies),
        ):
            self.assertEqual(expected, found)

    def test_node_is_called_as_its_host(self) -> None:
        """
        The node is called as its host.
        """
        self.assertEqual(socket.gethostname(), load().node)

    def test_directories(self) -> None:
        """
        The traffic log and the state lie below the user's data directory.
        """
        for name, found in (("traffic", load().traffic), ("state", load().state)):
            self.assertEqual(("msgnode", name), Path(found).parts[-2:])
            self.assertTrue(Path(found).is_absolute())

    def test_node_listens_on_loopback(self) -> None:
        """
        The node listens on loopback: web on 9090, lines on 9091, admin on 9092.
        """
        listeners = [(listen.kind, listen.endpoint, listen.cert) for listen in load().listeners()]

        ports = (("web", 9090), ("line", 9091), ("admin", 9092))
        expected = [(kind, f"tcp:{port}:interface=127.0.0.1", "") for kind, port in ports]
        self.assertEqual(expected, listeners)


class ListenTests(ConfigTests):
    """
    Where the node listens.
    """

    def where(self, **table: Any) -> list[tuple[str, str]]:
        return [(listen.kind, listen.endpoint) for listen in check(table, "x").listeners()]

    def test_strings(self) -> None:
        """
        Endpoint strings replace the default of their kind, as many as there are.
        """
        found = self.where(web=["tcp:1", "ssl:2"], lines=["unix:/x"], admin={"listen": "unix:/y"})

        self.assertEqual(
            [("web", "tcp:1"), ("web", "ssl:2"), ("line", "unix:/x"), ("admin", "unix:/y")], found
        )

    def test_none_or_no_string_at_all_is_no_listener(self) -> None:
        """
        `none`, or no string at all, is no listener of that kind.
        """
        self.assertEqual([("line", "tcp:1")], self.where(web=[], lines=["tcp:1"], admin={"listen": "none"}))
        self.assertEqual([], self.where(web=["none"], lines=["none"], admin={"listen": "none"}))

    def test_table_replaces_the_default_of_its_kind_and_stands(self) -> None:
        """
        A table replaces the default of its kind, and stands beside strings.
        """
        table = {"kind": "web", "endpoint": "tcp:443", "cert": "c.pem", "key": "k.pem", "client_ca": "ca.pem"}

        config = check({"listen": [table], "lines": [], "admin": {"listen": "none"}}, "x")
        self.assertEqual([Listen(**table)], config.listeners())
        found = self.where(listen=[table], web=["tcp:80"], lines=[], admin={"listen": "none"})
        self.assertEqual([("web", "tcp:80"), ("web", "tcp:443")], found)

    def test_admin_table(self) -> None:
        """
        The admin listener may be a table too.
        """
        table = {"kind": "admin", "endpoint": "tcp:5", "cert": "c.pem", "key": "k.pem"}
        found = self.where(listen=[table], web=[], lines=[])

        self.assertEqual([("admin", "tcp:5")], found)

    def test_an_admin_listener_that_others_reach_needs_tls(self) -> None:
        """
        Unless `admin.insecure` is true; clients' listeners do not.
        """
        for where in ("tcp:9092", "tcp6:9092", "tcp:9092:interface=192.0.2.1", r"tcp6:9092:interface=\:\:"):
            text = self.wrong({"admin": {"listen": where}})
            self.assertIn("admin.listen: found", text)
            self.assertIn("without TLS", text)
            self.assertIn("without TLS", self.wrong({"listen": [{"kind": "admin", "endpoint": where}]}))
            check({"admin": {"listen": where, "insecure": True}}, "x")
        for where in (
            "",
            "none",
            "unix:/run/admin.sock",
            "ssl:9092:privateKey=k.pem",
            "systemd:domain=INET:index=0",
            "tcp:0:interface=127.0.0.2",
            "tcp:0:interface=localhost",
            r"tcp6:0:interface=\:\:1",
        ):
            check({"admin": {"listen": where}}, "x")

    def test_from_file(self) -> None:
        """
        In the file a table is `[[listen]]`.
        """
        path = self.file(
            '[[listen]]\nkind = "line"\nendpoint = "tcp:7"\n[[listen]]\nkind = "web"\nendpoint = "tcp:8"\n'
        )

        found = [(listen.kind, listen.endpoint) for listen in load(path).listeners()]

        self.assertEqual(
            [("web", "tcp:8"), ("line", "tcp:7"), ("admin", "tcp:9092:interface=127.0.0.1")], found
        )


class FileTests(ConfigTests):
    """
    The file, and the options over it.
    """

    def test_file_wins_over_the_defaults(self) -> None:
        """
        What the file says holds; what it does not say is the default.
        """
        config = load(
            self.file(
                'domain = "example.org"\n[session]\nexpiry_seconds = 5\n[routing]\nreply_unknown = true\n'
            )
        )

        self.assertEqual(
            ("example.org", 5, True),
            (config.domain, config.session.expiry_seconds, config.routing.reply_unknown),
        )
        self.assertEqual(60, config.session.unused_expiry_seconds)

    def test_options_win_over_the_file(self) -> None:
        """
        What the options say holds over the file.
        """
        path = self.file('domain = "example.org"\nweb = ["tcp:1", "tcp:2"]\ntraffic = "none"\n')

        config = load(path, {"domain": "example.com", "web": ["tcp:3"]})

        self.assertEqual(("example.com", ["tcp:3"], "none"), (config.domain, config.web, config.traffic))

    def test_no_file(self) -> None:
        """
        Options do without a file.
        """
        self.assertEqual("example.org", load(None, {"domain": "example.org"}).domain)

    def test_whose_mistake(self) -> None:
        """
        A mistake is told of who made it.
        """
        path = self.file('domain = "example.org"\n')
        for given in (path, None):
            why = str(self.assertRaises(ConfigError, load, given, {"domain": "a b"}))
            self.assertEqual("options: domain: expected a domain name such as example.org, found 'a b'", why)

        path = self.file("domain = 3\n")
        why = str(self.assertRaises(ConfigError, load, path, {"traffic": "none"}))
        self.assertEqual(f"{path}: domain: expected a string, found 3", why)

    def test_file_that_is_not_there_is_none_is_no_utf_8(self) -> None:
        """
        A file that is not there, is none, is no UTF-8 or no TOML is named, with what is wrong.
        """
        binary = directory(self) / "node.toml"
        binary.write_bytes(b'domain = "\xff"')
        for path, text in (
            ("/nowhere/node.toml", "cannot be read: No such file"),
            (str(binary.parent), "cannot be read: Is a directory"),
            (str(binary), "is not UTF-8 at byte 10"),
            (self.file("domain = \n"), "is not TOML: Invalid value (at line 1"),
            (self.file("domain = 'a'\ndomain = 'b'\n"), "is not TOML: Cannot overwrite a value (at line 2"),
        ):
            why = str(self.assertRaises(ConfigError, load, path))

            self.assertTrue(why.startswith(f"{path}: {text}"), why)


class MistakeTests(ConfigTests):
    """
    A mistake stops the start: where, which key, what was expected, what was found.
    """

    def test_key_that_is_not_known_is_told_with_the_nearest_name(self) -> None:
        """
        A key that is not known is told with the nearest name, at every level.
        """
        web = {"kind": "web", "endpoint": "tcp:1"}
        for table, text in (
            ({"sesion": {}}, "sesion: unknown key; did you mean 'session'?"),
            ({"Domain": "x"}, "Domain: unknown key; did you mean 'domain'?"),
            (
                {"session": {"expirey_seconds": 3}},
                "session.expirey_seconds: unknown key; did you mean 'expiry_seconds'?",
            ),
            (
                {"limits": {"mesage_bytes": 3}},
                "limits.mesage_bytes: unknown key; did you mean 'message_bytes'?",
            ),
            ({"listen": [web, {**web, "crt": ""}]}, "listen[1].crt: unknown key; did you mean 'cert'?"),
            (
                {
                    "pools": {
                        "ok": {"scheme": "a", "pattern": "{1..2}"},
                        "ims": {"scheme": "sip", "adresses": []},
                    }
                },
                "pools.ims.adresses: unknown key; did you mean 'addresses'?",
            ),
            ({"routing": {"zzz": 1}}, "routing.zzz: unknown key; known are reply_unknown"),
        ):
            self.assertEqual(text, self.wrong(table))
        self.assertIn("zzz: unknown key; known are domain, node, web", self.wrong({"zzz": 1}))

    def test_value_of_another_type_is_told(self) -> None:
        """
        A value of another type is told with what was expected.
        """
        for table, text in (
            ({"domain": 3}, "domain: expected a string, found 3"),
            ({"admin": {"listen": 3}}, "admin.listen: expected a string, found 3"),
            ({"web": "tcp:1"}, "web: expected a list, found 'tcp:1'"),
            ({"web": ["tcp:1", 2]}, "web[1]: expected a string, found 2"),
            ({"session": 3}, "session: expected a table, found 3"),
            (
                {"session": {"expiry_seconds": "1 day"}},
                "session.expiry_seconds: expected a number, found '1 day'",
            ),
            (
                {"session": {"queue_messages": 1.5}},
                "session.queue_messages: expected a whole number, found 1.5",
            ),
            (
                {"limits": {"message_bytes": True}},
                "limits.message_bytes: expected a whole number, found True",
            ),
            ({"routing": {"reply_unknown": 1}}, "routing.reply_unknown: expected true or false, found 1"),
            ({"listen": {}}, "listen: expected a list, found {}"),
            ({"listen": ["x"]}, "listen[0]: expected a table, found 'x'"),
            ({"pools": []}, "pools: expected a table, found []"),
            ({"pools": {"ims": 3}}, "pools.ims: expected a table, found 3"),
            (
                {"pools": {"ims": {"scheme": "sip", "addresses": ["a", 3]}}},
                "pools.ims.addresses[1]: expected a string, found 3",
            ),
        ):
            self.assertEqual(text, self.wrong(table))

    def test_number_out_of_range_is_told_with_the_range(self) -> None:
        """
        A number out of range is told with the range.
        """
        for section, key, value, range in (
            ("session", "expiry_seconds", 0, "a number > 0"),
            ("session", "anonymous_expiry_seconds", -1.5, "a number > 0"),
            ("session", "unused_expiry_seconds", 0, "a number > 0"),
            ("session", "open_deadline_seconds", 0, "a number > 0"),
            ("session", "expiry_seconds", float("inf"), "a number <= 3"),
            ("session", "expiry_seconds", float("nan"), "a number > 0"),
            ("session", "queue_messages", 0, "a whole number >= 1"),
            ("session", "queue_bytes", -1, "a whole number >= 1"),
            ("session", "max_memory_bytes", 0, "a whole number >= 1"),
            ("session", "takeover_after_seconds", -1, "a number >= 0"),
            ("limits", "message_bytes", 0, "a whole number >= 1"),
            ("limits", "connections", 0, "a whole number >= 1"),
            ("limits", "connections_per_ip", 0, "a whole number >= 1"),
            ("limits", "session_rate_messages", -1, "a whole number >= 0"),
            ("limits", "ip_rate_bytes", -1, "a whole number >= 0"),
            ("limits", "sessions", 0, "a whole number >= 1"),
            ("limits", "bindings_per_session", 0, "a whole number >= 1"),
            ("limits", "learned_routes_per_session", -1, "a whole number >= 0"),
            ("allocation", "per_request", 0, "a whole number >= 1"),
            ("websocket", "ping_seconds", -1, "a number >= 0"),
            ("websocket", "compress_above_bytes", -1, "a whole number >= 0"),
        ):
            why = self.wrong({section: {key: value}})

            self.assertTrue(why.startswith(f"{section}.{key}: expected {range}"), why)
            self.assertTrue(why.endswith(f", found {value!r}"), why)

    def test_word_that_is_none_of_the_known_is_told_with_those(self) -> None:
        """
        A word that is none of the known is told with those.
        """
        for table, text in (
            ({"sync": "none"}, "sync: expected 'normal' or 'full', found 'none'"),
            (
                {"session": {"takeover": "all"}},
                "session.takeover: expected 'open' or 'token', found 'all'",
            ),
            (
                {"session": {"from_check": "on"}},
                "session.from_check: expected 'off', 'log' or 'refuse', found 'on'",
            ),
            (
                {"session": {"message_token": "on"}},
                "session.message_token: expected 'off' or 'require', found 'on'",
            ),
        ):
            self.assertEqual(text, self.wrong(table))

    def test_contradictions(self) -> None:
        """
        So is what is well formed and makes no sense.
        """
        for table, text in (
            ({"domain": ""}, "domain: expected a domain name such as example.org, found ''"),
            ({"domain": "a/b"}, "domain: expected a domain name such as example.org, found 'a/b'"),
            ({"node": ""}, "node: expected a name, found ''"),
            ({"state": ""}, "state: expected a directory or 'none', found ''"),
            ({"traffic": ""}, "traffic: expected a directory or 'none', found ''"),
            (
                {"session": {"max_memory_bytes": 8_388_607}},
                "session.max_memory_bytes: expected at least session.queue_bytes (8388608), found 8388607",
            ),
            ({"path_prefix": "x"}, "path_prefix: expected a path such as /msgnode, found 'x'"),
            ({"path_prefix": "/x/"}, "path_prefix: expected a path such as /msgnode, found '/x/'"),
            (
                {"session": {"queue_bytes": 100}},
                "session.queue_bytes: expected at least limits.message_bytes (8388608), found 100",
            ),
        ):
            self.assertEqual(text, self.wrong(table))
        check({"path_prefix": "/x/y", "domain": "localhost:9090"}, "node.toml")

    def test_listener_needs_kind_endpoint_and_certificate(self) -> None:
        """
        A listener has a kind and an endpoint, and a certificate where it has a key.
        """
        for listen, text in (
            ({"endpoint": "tcp:1"}, "listen[0].kind: is missing"),
            ({"kind": "web"}, "listen[0].endpoint: is missing"),
            (
                {"kind": "wib", "endpoint": "tcp:1"},
                "listen[0].kind: expected 'web', 'line', 'admin' or 'node', found 'wib'",
            ),
            (
                {"kind": "web", "endpoint": "tcp:1", "key": "k.pem"},
                "listen[0]: expected 'cert' with 'key' or 'client_ca'",
            ),
            (
                {"kind": "web", "endpoint": "unix:/run/web", "reuse_port": True},
                "listen[0].endpoint: expected an endpoint that begins tcp:, with 'reuse_port', found "
                "'unix:/run/web'",
            ),
            (
                {"kind": "admin", "endpoint": "tcp:1", "reuse_port": True, "cert": "c.pem"},
                "listen[0].reuse_port: expected false: an operator asks one node, not any of several",
            ),
        ):
            self.assertEqual(text, self.wrong({"listen": [listen]}))


class PoolTests(ConfigTests):
    """
    Foreign pools.
    """

    def pool(self, **pool: Any) -> Config:
        return check({"pools": {"ims": {"scheme": "sip", **pool}}}, "node.toml")

    def test_pool_is_a_list_or_a_pattern_of_one(self) -> None:
        """
        A pool is a list, or a pattern of one.
        """
        self.assertEqual(["sip:a"], self.pool(addresses=["sip:a"]).pools["ims"].all_addresses())
        self.assertEqual(
            ["sip:1@d", "sip:2@d"], self.pool(pattern="sip:{1..2}@d").pools["ims"].all_addresses()
        )

    def test_pool_mistakes_are_named(self) -> None:
        """
        Neither, both, no scheme, a scheme or a pattern that is none, an address twice.
        """
        for pool, text in (
            ({}, "pools.ims: expected either 'addresses' or 'pattern'"),
            ({"addresses": []}, "pools.ims: expected either 'addresses' or 'pattern'"),
            (
                {"addresses": ["a"], "pattern": "{1..2}"},
                "pools.ims: expected either 'addresses' or 'pattern'",
            ),
            (
                {"scheme": "SIP", "addresses": ["a"]},
                "pools.ims.scheme: expected a URL scheme such as sip, found 'SIP'",
            ),
            ({"pattern": "sip:x"}, "pools.ims.pattern: expected one range such as {1..99}, found 'sip:x'"),
            (
                {"pattern": "{9..1}"},
                "pools.ims.pattern: expected a range that ascends, of at most 100000, found {9..1}",
            ),
            (
                {"addresses": ["a", "b", "a"]},
                "pools.ims.addresses: expected each address once, found 'a' again",
            ),
        ):
            self.assertEqual(text, self.wrong({"pools": {"ims": {"scheme": "sip", **pool}}}))
        self.assertEqual("pools.ims.scheme: is missing", self.wrong({"pools": {"ims": {"addresses": ["a"]}}}))

    def test_list_is_as_long_as_a_pattern_may_be_and_is_looked(self) -> None:
        """
        A list is as long as a pattern may be, and is looked through in good time.
        """
        addresses = [f"sip:{n}" for n in range(100_001)]

        self.pool(addresses=addresses[:-1])
        why = self.wrong({"pools": {"ims": {"scheme": "sip", "addresses": addresses}}})

        self.assertEqual("pools.ims.addresses: expected at most 100000, found 100001", why)

    def test_same_scheme(self) -> None:
        """
        Two pools of one scheme would hide one another.
        """
        why = self.wrong({"pools": {name: {"scheme": "sip", "addresses": [f"sip:{name}"]} for name in "ab"}})

        self.assertEqual("pools.b.scheme: expected a scheme of its own, found 'sip' as in pools.a", why)


class BackEndTests(SynchronousTestCase):
    """
    Where back ends are.
    """

    def test_url_with_a_space_is_refused(self) -> None:
        """
        A URL with a space in it is refused in one line.
        """
        table = {"domain": "example.org", "node": "n", "registry": {"url": "http://h h"}}

        why = self.assertRaises(ConfigError, check, table, "here")

        self.assertTrue(str(why).startswith("here: registry.url: expected 'embedded'"), why)


# -- names of keys -----------------------------------------------------------


def keys(struct: Any = Config, prefix: str = "") -> dict[str, Any]:
    """
    Every key of the configuration and what it takes, those of a provider included.
    """
    found: dict[str, Any] = {"identity.providers": list} if not prefix else {}
    for field in msgspec.structs.fields(struct):
        kind = IdentityProvider if field.type == list[IdentityProvider] else field.type
        if isinstance(kind, type) and issubclass(kind, Section):
            found |= keys(kind, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = field.type
    return found


@pytest.mark.parametrize("old, new", RENAMED.items())
def test_renamed_key(old: str, new: str) -> None:
    """
    An old key is refused with the name that it has now, which is a key.
    """
    table: Any = 1
    for step in reversed(old.split(".")):
        table = {step: [{}, table] if step == "providers" else table}

    with pytest.raises(ConfigError) as raised:
        check(table, "node.toml")

    shown = old.replace("providers", "providers[1]")
    assert f"node.toml: {shown}: is now called {new}" == str(raised.value)
    assert new in keys()
    assert old not in keys()


def test_renamed_key_in_a_file(tmp_path: Path) -> None:
    """
    So it is in a file, whatever else is wrong with it.
    """
    path = tmp_path / "node.toml"
    path.write_text('admin = "tcp:1"\nnonsense = 1\n')

    with pytest.raises(ConfigError, match=r"node\.toml: admin: is now called admin\.listen$"):
        load(str(path))


def test_names_of_others() -> None:
    """
    Names that the operator gives are none of these.
    """
    pool = {"scheme": "sip", "addresses": ["sip:a"]}

    assert ["line"] == list(check({"pools": {"line": pool}}, "node.toml").pools)


def test_durations_and_sizes_have_units_in_their_names() -> None:
    """
    A duration has its unit in its name, and so has a size.
    """
    for key, kind in keys().items():
        bounds = getattr(kind, "__metadata__", ())
        if kind not in (Share, Factor) and bounds and kind.__origin__ is float:
            assert key.endswith("_seconds"), key
    sizes = {key for key in keys() if re.search("memory|size|bytes", key)}
    assert all(re.search("_bytes(_|$)", key) or key == "policy.max_bytes" for key in sizes)
