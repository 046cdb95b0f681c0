"""
Tokens that only their provider can read: what it says of them, and how often it is asked.
"""

import json
from base64 import b64decode, b64encode
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Site

from msgnode.backends.http_client import BackendClient
from msgnode.backends.identity import opaque_tokens
from msgnode.backends.identity.introspection import DEFAULT_LIFETIME_SECONDS, basic
from msgnode.backends.identity.opaque_tokens import (
    DEFAULT_CACHE_SECONDS,
    INVALID_CACHE_SECONDS,
    ExpiringCache,
)
from msgnode.backends.identity.token_validator import Tokens
from msgnode.config.loader import check
from msgnode.config.schema import ConfigError, IdentityProvider
from msgnode.protocol.close_codes import TOKEN_LATER
from msgnode.protocol.errors import Rejected
from msgnode.service.wiring import make_token_validator
from msgnode.sessions.access.authentication import TOKEN_TIMEOUT_SECONDS
from msgnode.sessions.principal import Principal, VerifiedToken
from tests.config.test_reload import logged
from tests.support.back_ends import Memory
from tests.support.fakes import Client, MemoryNode, directory
from tests.support.openid import NOW, OpenID, provider
from tests.support.world import World

ANN = "user://example.org/ann@example.org"
ASK = {"client_id": "msgnode", "client_secret": "s3cret"}
OTHER = "https://other.example.net"
TOKEN = "2YotnFZFEjr1zCsicMWpAA"
SILENT = "the identity provider cannot validate the token now; try again later"
INACTIVE = "the token is not known to its provider, or no longer valid"


def wrapped(token: str) -> str:
    return b64encode(json.dumps({"tokenID": token, "tokenIDJSON": {}}).encode()).decode()


class OpaqueCase(SynchronousTestCase):
    """
    Two providers in memory, of which the first, or both, are asked.
    """

    def setUp(self) -> None:
        self.clock, self.wall = Clock(), NOW
        self.openid, self.other = (
            OpenID(issuer, lambda: self.wall) for issuer in (provider()["issuer"], OTHER)
        )
        self.wires, self.other_wires = (
            Memory(self.clock, lambda openid=openid: Site(openid).buildProtocol(None))
            for openid in (self.openid, self.other)
        )
        self.start()

    def start(self, *more: dict[str, Any], **options: Any) -> None:
        asked = provider(**{"introspection": ASK, **options})
        self.identity = self.configured(asked, *more)
        self.tokens = Tokens(self.identity, self.clock, self.connect, lambda: self.wall)

    def configured(self, *providers: dict[str, Any]) -> Any:
        listed = {"auth": "required", "providers": list(providers)}
        return check({"domain": "example.org", "identity": listed}, "test").identity

    def connect(self, host: str, options: IdentityProvider) -> BackendClient:
        wires = self.other_wires if host == OTHER else self.wires
        plain = host.replace("https:", "http:")  # the wires know no TLS
        return BackendClient(plain, options, self.clock, "provider", dial=lambda host, port: wires)

    def pump(self) -> None:
        for wires in (self.wires, self.other_wires) * 3:
            wires.pump()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.wall += seconds
        self.pump()

    def proof(self, token: str = TOKEN) -> Principal:
        """
        What the token proves; raises Rejected.
        """
        found = self.tokens.validate(token)
        if isinstance(found, Deferred):
            self.pump()
            outcome: list[Any] = []
            found.addBoth(outcome.append)
            self.assertEqual(1, len(outcome), "no answer")
            found = outcome[0] if isinstance(outcome[0], VerifiedToken) else outcome[0].raiseException()
        return found.proof

    def refusal(self, token: str = TOKEN) -> tuple[int, str]:
        with self.assertRaises(Rejected) as raised:
            self.proof(token)
        self.assertNotIn(token, str(raised.exception))
        return raised.exception.code, str(raised.exception)

    @property
    def asked(self) -> int:
        return self.openid.asked.get("/introspect", 0)


class AnswerTests(OpaqueCase):
    """
    What a provider says of a token.
    """

    def test_active_token_proves_its_bearer(self) -> None:
        """
        A token that its provider knows proves who its bearer is, who vouches, and until when.
        """
        self.openid.issue(TOKEN, scope="openid chat")

        proof = self.proof()

        self.assertEqual((ANN, "example.org", "ann-1"), (proof.user, proof.idp, proof.subject))
        self.assertEqual("ann@example.org", proof.username)
        self.assertEqual(("openid", "chat"), proof.scopes)
        self.assertEqual(NOW + 600, proof.until)

    def test_how_it_is_asked(self) -> None:
        """
        The provider is asked with a form, as the client that it knows the node by.
        """
        self.openid.issue("a+b/c~&=")

        self.proof("a+b/c~&=")

        self.assertEqual(
            [{b"token": [b"a+b/c~&="], b"token_type_hint": [b"access_token"]}], self.openid.forms
        )

    def test_name_and_secret_are_encoded_for_basic_auth(self) -> None:
        """
        Name and secret may hold any character: each is encoded before they are joined (RFC 6749, 2.3.1).
        """
        name, secret = "node:1 ü", "a+b/c:%d&e f"
        self.start(introspection={"client_id": name, "client_secret": secret})
        self.openid.client = name, secret
        self.openid.issue(TOKEN)

        self.assertEqual(ANN, self.proof().user)
        self.assertEqual(b"node%3A1:a%2Bb%20c", b64decode(basic("node:1", "a+b c").split()[1]))

    def test_inactive(self) -> None:
        """
        A token that the provider does not know, or no longer, is refused.
        """
        self.assertEqual((401, INACTIVE), self.refusal())

    def test_active_token_is_good_for_nothing_here_if_it_has(self) -> None:
        """
        An active token is good for nothing here if it has ended, is another's, or says not who its bearer is.
        """
        for number, (words, claims) in enumerate(
            (
                ("expired", {"exp": int(NOW) - 61}),
                ("exp", {"exp": "tomorrow"}),
                ("too large", {"exp": 10**400}),
                ("not yet valid", {"nbf": int(NOW) + 120}),
                ("'iss'", {"iss": OTHER}),
                ("'iss'", {"iss": 5}),
                ("'aud'", {"aud": "another"}),
                ("'aud'", {"aud": ["another", "third"]}),
                ("'aud'", {"client_id": "another"}),
                ("aud", {"client_id": None}),
                ("was given to 'shop'", {"aud": ["msgnode", "other"], "azp": "shop"}),
                ("sub", {"sub": 5}),
                ("has not verified", {"email_verified": None}),
                ("has no 'email'", {"email": None}),
            )
        ):
            token = self.openid.issue(f"token-{number}", **claims)
            code, text = self.refusal(token)
            self.assertEqual(401, code, text)
            self.assertIn(words, text)

    def test_audience(self) -> None:
        """
        Whom a token is for is its audience; where the provider names none, the client it was given to.
        """
        for token, claims in (
            ("a", {"aud": "msgnode", "client_id": "app"}),
            ("b", {"aud": ["app", "msgnode"]}),
            ("c", {"aud": []}),
            ("d", {"iss": provider()["issuer"]}),
        ):
            self.assertEqual(ANN, self.proof(self.openid.issue(token, **claims)).user, claims)

    def test_user_address_may_be_made_of_the_name_that_rfc_7662(self) -> None:
        """
        The user's address may be made of the name that RFC 7662 calls `username`, or of the subject.
        """
        for pattern, user in (
            ("user://{domain}/{preferred_username}", "user://example.org/ann"),
            ("user://{domain}/{sub}", "user://example.org/ann-1"),
        ):
            self.start(user_url=pattern)
            self.openid.issue(TOKEN, email=None)
            self.assertEqual(user, self.proof().user)

    def test_no_subject(self) -> None:
        """
        A provider that names users only by name is enough where they are known by it; never as a subject.
        """
        self.openid.issue(TOKEN, sub=None)

        self.start(user_url="user://{domain}/{preferred_username}")
        self.assertEqual(("user://example.org/ann", "ann"), (self.proof().user, self.proof().subject))
        self.start(user_url="user://{domain}/{sub}")
        self.assertEqual(401, self.refusal()[0])

    def test_token_whose_provider_names_no_end_proves_something(self) -> None:
        """
        A token whose provider names no end proves something for a day; then it is shown again.
        """
        self.openid.issue(TOKEN, exp=None)

        self.assertEqual(NOW + DEFAULT_LIFETIME_SECONDS, self.proof().until)

    def test_what_is_kept(self) -> None:
        """
        Of the answer only what is needed is kept; whoever asks by message learns no more.
        """
        self.openid.issue(TOKEN, internal_note="x" * 1000)

        found = self.tokens.validate(TOKEN)
        self.pump()

        self.assertNotIn("internal_note", self.successResultOf(found).claims)

    def test_signed_session_and_device_tokens_are_not_introspected(self) -> None:
        """
        A signed token is not asked about, nor that of a session or a device, nor what can be none.
        """
        self.assertEqual(ANN, self.proof(self.openid.token()).user)
        stranger = OpenID("https://evil.example.net").token()
        ours = ["mns_" + "x" * 43, "mnd_" + "x" * 43]
        ours += [wrapped(token) for token in ours]
        for token in (stranger, *ours, "ä", "a\nb", "\udc80", "x" * 20_000):
            self.assertIn(self.refusal(token)[0], (401, 403), token)

        self.assertEqual(0, self.asked)

    def test_provider_sees_only_the_token_of_an_assertion(self) -> None:
        """
        Of a runtime's assertion its provider sees only the token that is in it.
        """
        self.openid.issue(TOKEN)

        self.assertEqual(ANN, self.proof(wrapped(TOKEN)).user)
        self.assertEqual([TOKEN.encode()], self.openid.forms[0][b"token"])

    def test_almost_signed(self) -> None:
        """
        A token of three parts that are no JSON is as opaque as any.
        """
        for token in ("v4.public.abc", "W10.W10.abc"):
            self.openid.issue(token)
            self.assertEqual(ANN, self.proof(token).user)

    def test_nobody_to_ask(self) -> None:
        """
        Where no provider is to be asked, a token that says nothing is refused as ever.
        """
        self.tokens = Tokens(self.configured(provider()), self.clock, self.connect, lambda: self.wall)

        self.assertEqual((401, "the token is not a signed token of three parts"), self.refusal())
        self.assertEqual({}, self.openid.asked)


class PlaceTests(OpaqueCase):
    """
    Where the provider is asked.
    """

    def test_discovered(self) -> None:
        """
        The discovery document says where; however many tokens come first, it is fetched once.
        """
        found = [self.tokens.validate(self.openid.issue(f"token-{n}")) for n in range(20)]
        self.pump()

        self.assertEqual([ANN] * 20, [self.successResultOf(claim).proof.user for claim in found])
        self.assertEqual({"/.well-known/openid-configuration": 1, "/introspect": 20}, self.openid.asked)

    def test_with_url_nothing_is_discovered(self) -> None:
        """
        With `url` nothing is discovered.
        """
        self.start(introspection={**ASK, "url": f"{provider()['issuer']}/introspect"})
        self.openid.issue(TOKEN)

        self.proof()

        self.assertEqual({"/introspect": 1}, self.openid.asked)

    def test_metrics_tell_introspection_host_from_key_host(self) -> None:
        """
        Metrics and log tell an introspection endpoint with a host of its own from where the keys are.
        """
        names = []
        for host, uri in (
            ("https://id.example.org", ""),
            ("https://ask.example.org", "https://keys.example.org/"),
        ):
            options = provider(introspection={**ASK, "url": f"{host}/introspect"}, jwks_uri=uri)
            config = check({"identity": {"providers": [options]}}, "test")
            tokens = make_token_validator(config, self.clock, lambda host, port: self.wires)
            tokens.called = lambda client: names.append(client.name)
            tokens.validate(TOKEN)
            tokens.start()

        whole = "identity provider example.org"
        self.assertEqual([whole, f"{whole} introspection", f"{whole} keys"], names)

    def test_secret_is_never_sent_in_plain_text(self) -> None:
        """
        Our secret is sent nowhere in plain text, nor where the document names no place at all.
        """
        for place in ("http://id.example.org/introspect", "http://localhost/introspect", None, 5):
            self.start()
            self.openid.metadata["introspection_endpoint"] = place
            self.assertEqual((502, SILENT), self.refusal())
        self.assertEqual(0, self.asked)


class RememberedTests(OpaqueCase):
    """
    How often the provider is asked.
    """

    def test_token_that_is_shown_five_hundred_times_is_asked(self) -> None:
        """
        A token that is shown five hundred times is asked about once, until it ends.
        """
        self.openid.issue(TOKEN)
        for _ in range(500):
            self.assertEqual(ANN, self.proof().user)
        self.advance(599)
        self.proof()
        self.assertEqual(1, self.asked)

        self.openid.opaque.clear()
        self.advance(1)
        self.assertEqual(401, self.refusal()[0])
        self.assertEqual(2, self.asked)

    def test_one_without_an_end_is_asked_about_again_after_five(self) -> None:
        """
        One without an end is asked about again after five minutes.
        """
        self.openid.issue(TOKEN, exp=None)
        self.proof()
        self.advance(DEFAULT_CACHE_SECONDS - 1)
        self.proof()
        self.assertEqual(1, self.asked)

        self.openid.opaque.clear()
        self.advance(1)
        self.assertEqual(401, self.refusal()[0])

    def test_however_many_show_a_token_at_once_one_question(self) -> None:
        """
        However many show a token at once, one question is under way, and all have its answer.
        """
        self.openid.issue(TOKEN)
        found = [self.tokens.validate(TOKEN) for _ in range(50)]
        self.pump()

        self.assertEqual([ANN] * 50, [self.successResultOf(claim).proof.user for claim in found])
        self.assertEqual(1, self.asked)

    def test_token_that_is_no_good_or_not_for_us_is_asked_about(self) -> None:
        """
        A token that is no good, or not for us, is asked about once in ten seconds, however often it is shown.
        """
        other = self.openid.issue("for another", client_id="another")
        for token in (TOKEN, other):
            before = self.asked
            first = self.refusal(token)
            for _ in range(100):
                self.assertEqual(first, self.refusal(token))
            self.assertEqual(1, self.asked - before)
        self.advance(INVALID_CACHE_SECONDS)
        self.openid.issue(TOKEN)

        self.assertEqual(ANN, self.proof().user)

    def test_no_more_is_remembered_than_may(self) -> None:
        """
        No more is remembered than may be; what was used longest ago goes first.
        """
        remembered: ExpiringCache[int] = ExpiringCache(2, self.clock)
        for number in (1, 2):
            remembered.put(bytes([number]), number, 10)
        remembered.get(bytes([1]))
        remembered.put(bytes([3]), 3, 10)

        self.assertEqual([1, None, 3], [remembered.get(bytes([number])) for number in (1, 2, 3)])

    def test_made_up_tokens_push_nobody_out(self) -> None:
        """
        Tokens that are made up are remembered apart, a thousand at most: those that are good stay known.
        """
        self.openid.issue(TOKEN)
        self.proof()
        for number in range(opaque_tokens.MAX_INVALID + 1):
            maybeDeferred(self.tokens.validate, f"made-up-{number}").addErrback(lambda why: None)
            if number % 100 == 0:
                self.pump()
        self.pump()
        before = self.asked

        self.proof()
        self.refusal(f"made-up-{opaque_tokens.MAX_INVALID}")

        self.assertEqual(before, self.asked)
        self.refusal("made-up-0")
        self.assertEqual(before + 1, self.asked)

    def test_no_token_is_kept(self) -> None:
        """
        Neither the log nor the node's memory of tokens holds one; what the provider echoes is not logged.
        """
        said = logged(self)
        self.openid.issue(TOKEN)
        self.proof()
        self.openid.said, self.openid.status = b'{"error": "no such token: another-one"}', 500
        self.refusal("another-one")

        for remembered in (self.tokens._opaque._good, self.tokens._opaque._no_good):
            self.assertNotIn(TOKEN, repr(vars(remembered)))
        self.assertTrue(said)
        self.assertNotIn("another-one", repr(said))
        self.assertNotIn("s3cret", repr(said))


class TroubleTests(OpaqueCase):
    """
    A provider that is down, slow, or talks nonsense.
    """

    def setUp(self) -> None:
        super().setUp()
        self.start(introspection={**ASK, "url": f"{provider()['issuer']}/introspect"})
        self.openid.issue(TOKEN)

    def test_provider_that_is_not_there_is_504(self) -> None:
        """
        A provider that is not there is 504; when it is back its tokens are good at once.
        """
        self.wires.refuse = ConnectionRefusedError()
        self.assertEqual((504, SILENT), self.refusal())
        self.wires.refuse = None

        self.assertEqual(ANN, self.proof().user)

    def test_one_that_does_not_answer_is_504_when_the_deadline(self) -> None:
        """
        One that does not answer is 504 when the deadline passes.
        """
        self.openid.slow = True
        found = self.tokens.validate(TOKEN)
        self.pump()
        self.advance(4.9)
        self.assertNoResult(found)
        self.advance(0.2)

        self.assertEqual(504, self.failureResultOf(found, Rejected).value.code)

    def test_known_while_down(self) -> None:
        """
        A token that is known stays good while its provider is down.
        """
        self.proof()
        self.wires.refuse = ConnectionRefusedError()
        self.wires.cut()

        self.assertEqual(ANN, self.proof().user)

    def test_answer_that_does_not_say_whether_the_token_is_good(self) -> None:
        """
        An answer that does not say whether the token is good is 502, whatever else it says.
        """
        for said in (
            b"",
            b"<html>active</html>",
            b"[]",
            b"true",
            b'{"sub": "ann-1"}',
            b'{"active": "true"}',
            b'{"active": 1}',
            b'{"active": null}',
            b"[" * 100_000,
            b" " * 10_000_000,
        ):
            self.openid.said = said
            self.assertEqual((502, SILENT), self.refusal(), said[:40])

    def test_error_is_no_answer(self) -> None:
        """
        An error is no answer: 502 if the provider fails, 503 if it does not take our question.
        """
        for status, code in ((302, 503), (400, 503), (404, 503), (429, 503), (500, 502), (503, 502)):
            self.openid.status = status
            self.assertEqual((code, SILENT), self.refusal(), status)

    def test_operator_is_told_once_what_is_wrong_and_once(self) -> None:
        """
        The operator is told once what is wrong, and once that it is well.
        """
        said = logged(self)
        self.openid.client = "msgnode", "changed"
        for _ in range(3):
            self.assertEqual((503, SILENT), self.refusal())
        self.openid.client = "msgnode", "s3cret"
        self.proof()

        issuer = provider()["issuer"]
        why = "it answered 401; check 'client_id' and the client secret"
        expected = [
            f"warn: token introspection at {issuer} fails: {why}",
            f"info: token introspection at {issuer} works again",
        ]
        self.assertEqual(expected, said)


class SeveralTests(OpaqueCase):
    """
    Two providers that can be asked.
    """

    def setUp(self) -> None:
        super().setUp()
        self.start(provider(domain="other.example.net", issuer=OTHER, introspection=ASK))

    def test_they_are_asked_in_the_order_of_the_configuration(self) -> None:
        """
        They are asked in the order of the configuration, until one knows the token.
        """
        self.openid.issue("first")
        self.other.issue("second")

        self.assertEqual("example.org", self.proof("first").idp)
        self.assertNotIn("/introspect", self.other.asked)
        self.assertEqual("other.example.net", self.proof("second").idp)
        self.assertEqual((401, INACTIVE), self.refusal("third"))

    def test_one_is_down(self) -> None:
        """
        While one is down the tokens of the other are good; what the other does not know may be good or not.
        """
        self.wires.refuse = ConnectionRefusedError()
        self.other.issue("second")

        self.assertEqual("other.example.net", self.proof("second").idp)
        self.assertEqual((504, SILENT), self.refusal("third"))
        self.wires.refuse = None
        self.assertEqual((401, INACTIVE), self.refusal("third"))


class ReloadTests(OpaqueCase):
    """
    The configuration changes while the node runs.
    """

    def reload(self, *providers: dict[str, Any]) -> None:
        self.identity.providers = self.configured(*providers).providers
        self.tokens.apply()

    def test_switched_off_and_on(self) -> None:
        """
        Nobody is asked, nor believed from memory, once the operator does not say so.
        """
        self.openid.issue(TOKEN)
        self.proof()
        self.reload(provider())
        self.assertEqual(401, self.refusal()[0])
        self.reload(provider(introspection=ASK))

        self.assertEqual(ANN, self.proof().user)
        self.assertEqual(2, self.asked)

    def test_secret_file_is_read_with_the_configuration(self) -> None:
        """
        The secret may be in a file, with a line's end or without; it is read again with the configuration.
        """
        path = directory(self) / "secret"
        path.write_text("s3cret\n")
        self.openid.issue(TOKEN)
        listed = provider(introspection={"client_id": "msgnode", "client_secret_file": str(path)})
        self.reload(listed)
        self.proof()
        self.openid.client = "msgnode", "rotated"
        path.write_text("rotated")
        self.tokens.apply()

        self.assertEqual(ANN, self.proof().user)

    def test_secret_file_is_missing(self) -> None:
        """
        A file that cannot be read, or is empty, stops the start, and a reload before it changes whom we ask.
        """
        path = directory(self) / "secret"
        listed = provider(introspection={"client_id": "msgnode", "client_secret_file": str(path)})
        for words in ("cannot be read: No such file", "expected a secret, found nothing"):
            with self.assertRaises(ConfigError) as raised:
                Tokens(self.configured(listed), self.clock, self.connect)
            self.assertIn(f"client_secret_file: {path}: {words}", str(raised.exception))
            with self.assertRaises(ConfigError):
                self.reload(listed)
            path.write_text("\n")
        self.openid.issue(TOKEN)

        self.assertEqual(ANN, self.proof().user)

    def test_unreadable_certificates_stop_start_and_reload(self) -> None:
        """
        A provider whose certificates cannot be read stops the start, and a reload before it changes anything.
        """
        wrong = {"auth": "required", "providers": [provider(introspection=ASK, ca="/nowhere.pem")]}
        config = check({"domain": "example.org", "identity": wrong}, "test")
        with self.assertRaisesRegex(ConfigError, "/nowhere.pem: cannot be read"):
            make_token_validator(config, self.clock)
        good = [provider(introspection=ASK)]
        config.identity.providers, listed = self.configured(*good).providers, config.identity.providers
        tokens = make_token_validator(config, self.clock, lambda host, port: self.wires)
        config.identity.providers = listed

        with self.assertRaisesRegex(ConfigError, "/nowhere.pem: cannot be read"):
            tokens.apply()

        self.assertEqual(good[0]["issuer"], tokens.by_domain(None).options.issuer)
        self.assertEqual("", tokens.by_domain(None).options.ca)

    def test_signed_while_it_changes(self) -> None:
        """
        What was looked at by a configuration that is over is not remembered.
        """
        token = self.openid.token()
        found = self.tokens.validate(token)  # its keys are on their way
        self.reload(provider(audiences=["another"]))
        self.pump()
        self.successResultOf(found)

        self.assertEqual(401, self.refusal(token)[0])

    def test_secret_file_goes(self) -> None:
        """
        A file that was read once and cannot be read again leaves the secret as it was, and the log says so.
        """
        path = directory(self) / "secret"
        path.write_text("s3cret")
        self.reload(provider(introspection={"client_id": "msgnode", "client_secret_file": str(path)}))
        said = logged(self)
        path.unlink()
        self.tokens.apply()
        self.openid.issue(TOKEN)

        self.assertEqual(ANN, self.proof().user)
        self.assertIn("could not be reloaded", said[0])


class OpenTests(SynchronousTestCase):
    """
    A session that is opened with such a token.
    """

    def setUp(self) -> None:
        options = provider(introspection=ASK)
        self.node = MemoryNode(world=World, identity={"auth": "required", "providers": [options]})
        self.openid = self.node.world.openid
        self.client = Client(self.node)
        self.client.runtime = "runtime://example.org/ann"

    def open(self, token: str) -> None:
        message = {"id": 1, "type": "open", "from": self.client.runtime, "to": "mn:/session"}
        self.client.tell({**message, "body": {"token": token}})

    def test_open_waits_for_the_provider_and_what_comes_behind(self) -> None:
        """
        `open` waits for the provider, and what comes behind it too; then the session is its bearer's.
        """
        self.openid.issue(TOKEN)
        self.open(TOKEN)
        idm = "domain://idm.example.org"
        asked = {"id": 2, "type": "read", "from": self.client.runtime, "to": idm}
        self.client.tell({**asked, "body": {"resource": "/identity"}})
        self.assertEqual([], self.client.take())
        self.node.world.pump()

        opened, profile = self.client.take()
        self.assertEqual(200, opened["body"]["code"])
        self.assertEqual(ANN, profile["body"]["value"]["userURL"])

    def test_when_the_provider_takes_too_long_the_client_is_told(self) -> None:
        """
        When the provider takes too long the client is told to come back.
        """
        self.openid.issue(TOKEN)
        self.openid.slow = True
        self.open(TOKEN)
        self.node.world.pump()
        self.node.clock.advance(TOKEN_TIMEOUT_SECONDS)

        self.assertEqual(TOKEN_LATER, self.client.lost)

    def test_by_message(self) -> None:
        """
        Whose a token is can be asked by message too.
        """
        self.openid.issue(TOKEN)
        self.open(TOKEN)
        self.node.world.pump()
        self.client.take()
        asked = {"id": 2, "type": "execute", "from": self.client.runtime, "to": "domain://idm.example.org"}
        for token, code in ((self.openid.issue("another"), 200), ("unknown", 401)):
            body = {"method": "validateAssertion", "params": {"assertion": token}}
            self.client.tell({**asked, "body": body})
            self.node.world.pump()
            self.assertEqual(code, self.client.take()[-1]["body"]["code"])
