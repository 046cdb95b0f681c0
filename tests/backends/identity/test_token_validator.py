"""
Tokens: which are believed, which not, and how often their provider is asked.
"""

import hmac
import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any

from joserfc.jwk import ECKey, OctKey
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.backends.identity.jwt import MAX_TOKEN_CHARS
from msgnode.backends.identity.oidc_provider import RETRY_SECONDS, UNKNOWN_KEY_SECONDS
from msgnode.config.loader import check
from msgnode.protocol.errors import Rejected
from msgnode.sessions.principal import VerifiedToken
from tests.support.openid import NOW, OTHER_RSA, RSA, OpenID, okp, provider, unsigned
from tests.support.world import World

ANN = "user://example.org/ann@example.org"


def hs256(token: str, secret: str | bytes) -> str:
    """
    The token's claims, signed with a shared secret by hand: no library does it with a public key.
    """
    claims = token.split(".")[1]
    head = urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa-1"}').rstrip(b"=").decode()
    key = secret.encode() if isinstance(secret, str) else secret
    signature = hmac.digest(key, f"{head}.{claims}".encode(), "sha256")
    return f"{head}.{claims}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"


class Bench(World):
    """
    One provider, its identity, and a wall clock that can be set.
    """

    def __init__(self, **options: Any) -> None:
        self.clock, self.wall = Clock(), NOW
        listed = {"auth": "required", "providers": [provider(**options)]}
        config = check({"domain": "example.org", "identity": listed}, "test")
        super().__init__(config, self.clock, lambda: self.wall)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.wall += seconds
        self.pump()


class IdentityCase(SynchronousTestCase):
    """
    One provider, in memory.
    """

    options: dict[str, Any] = {}

    def setUp(self) -> None:
        self.bench = Bench(**self.options)
        self.openid, self.tokens = self.bench.openid, self.bench.tokens

    def validate(self, token: str) -> VerifiedToken:
        """
        The claim; raises Rejected.
        """
        found = self.tokens.validate(token)
        if isinstance(found, Deferred):
            self.bench.pump()
            return self.successResultOf(found) if not self.failed(found) else self.fail_with(found)
        return found

    def failed(self, found: Deferred[Any]) -> bool:
        return found.called and not isinstance(found.result, VerifiedToken)

    def fail_with(self, found: Deferred[Any]) -> VerifiedToken:
        raise self.failureResultOf(found).value

    def refusal(self, token: str) -> tuple[int, str]:
        """
        The code and the words with which the token is refused.
        """
        with self.assertRaises(Rejected) as raised:
            self.validate(token)
        return raised.exception.code, str(raised.exception)


class BelievedTests(IdentityCase):
    """
    Good tokens, and what is known by them.
    """

    def test_good_token_proves_its_bearer(self) -> None:
        """
        A good token proves who its bearer is, who vouches, and until when.
        """
        proof = self.validate(self.openid.token(scope="openid chat")).proof

        self.assertEqual(ANN, proof.user)
        self.assertEqual(("example.org", "ann-1"), (proof.idp, proof.subject))
        self.assertEqual("ann@example.org", proof.username)
        self.assertEqual(("openid", "chat"), proof.scopes)
        self.assertEqual(NOW + 600, proof.until)

    def test_name_with_slash_is_one_piece_of_the_address(self) -> None:
        """
        A name is one piece of the address, so that the address of one never ends in another's.
        """
        proof = self.validate(self.openid.token(email="eve+/ann@example.org?#%2F")).proof

        self.assertEqual("user://example.org/eve+%2Fann@example.org%3F%23%252F", proof.user)
        self.assertEqual("eve+/ann@example.org?#%2F", proof.username)

    def test_algorithms(self) -> None:
        """
        RSA, elliptic curves and EdDSA are understood, each by a key of its kind.
        """
        ec, ed = ECKey.generate_key("P-256", {"kid": "ec"}), okp()
        self.openid.keys = [RSA, ec, ed]

        for key, alg in ((RSA, "RS256"), (RSA, "PS256"), (ec, "ES256"), (ed, "EdDSA")):
            self.assertEqual(ANN, self.validate(self.openid.token(key, alg)).proof.user, alg)

    def test_assertion_is_base64_of_json_with_a_token(self) -> None:
        """
        An assertion of a runtime is base64 of a JSON object that holds the token.
        """
        inside = json.dumps({"tokenID": self.openid.token(), "tokenIDJSON": {"email": "eve@example.org"}})

        for encoded in (b64encode(inside.encode()), urlsafe_b64encode(inside.encode())):
            self.assertEqual(ANN, self.validate(encoded.decode()).proof.user)

    def test_nobody_says_which_key(self) -> None:
        """
        Where neither token nor key have a name, all keys are tried.
        """
        bare = ECKey.generate_key("P-256")
        self.openid.keys = [ECKey.generate_key("P-256"), bare]

        self.assertEqual(ANN, self.validate(self.openid.token(bare, "ES256")).proof.user)

    def test_asked_once(self) -> None:
        """
        Keys are fetched once and a signature is checked once, however often a token is shown.
        """
        token = self.openid.token()

        for _ in range(100):
            self.validate(token)

        self.assertEqual({"/.well-known/openid-configuration": 1, "/keys": 1}, self.openid.asked)
        self.assertEqual(1, self.tokens.verified)

    def test_many_tokens_wait_for_one_fetch_of_keys(self) -> None:
        """
        Many tokens that come before the keys do wait for one fetch.
        """
        found = [self.tokens.validate(self.openid.token(sub=f"user-{n}")) for n in range(50)]
        self.bench.pump()

        self.assertEqual([ANN] * 50, [self.successResultOf(claim).proof.user for claim in found])
        self.assertEqual(1, self.openid.asked["/keys"])

    def test_started(self) -> None:
        """
        After the start no client waits: the keys are there.
        """
        self.tokens.start()
        self.bench.pump()

        self.assertIsInstance(self.tokens.validate(self.openid.token()), VerifiedToken)


class RefusedTests(IdentityCase):
    """
    What is no token of ours.
    """

    def assertRefused(self, code: int, words: str, token: str) -> None:
        found = self.refusal(token)
        self.assertEqual(code, found[0], found)
        self.assertIn(words, found[1])
        self.assertNotIn(token, found[1])

    def test_token_that_nobody_signed_is_refused_whatever(self) -> None:
        """
        A token that nobody signed is refused, whatever it calls that.
        """
        self.validate(self.openid.token())
        claims = {"iss": self.openid.issuer, "sub": "ann", "aud": "msgnode", "exp": NOW + 60, "email": "a@b"}
        for alg in ("none", "None", "NONE", "nOnE"):
            for signature in ("", "e30"):
                token = unsigned(claims, alg, signature)
                self.assertEqual(401, self.refusal(token)[0], token)

    def test_key_confusion(self) -> None:
        """
        The public key, which everybody knows, is no shared secret to sign with.
        """
        pem = RSA.as_pem(private=False)
        for secret in (pem, pem.strip(), RSA.as_der(private=False), json.dumps(RSA.as_dict(private=False))):
            forged = hs256(self.openid.token(), secret)
            self.assertRefused(401, "is signed with 'HS256'", forged)

    def test_shared_secret_is_published(self) -> None:
        """
        A provider that publishes a shared secret among its keys makes nobody trust it.
        """
        secret = OctKey.generate_key(256, {"kid": "oct"})
        self.openid.keys = [RSA, secret]
        self.openid.broken = json.dumps(
            {"keys": [RSA.as_dict(private=False), secret.as_dict(private=True)]}
        ).encode()

        self.assertRefused(401, "is signed with 'HS256'", self.openid.token(secret, "HS256"))

    def test_other_key(self) -> None:
        """
        A token that names the right key but was signed by another is refused; so is one that was altered.
        """
        self.assertRefused(401, "is not signed by its provider", self.openid.token(OTHER_RSA))
        head, _, signature = self.openid.token().split(".")
        _, payload, _ = self.openid.token(email="eve@example.org").split(".")
        self.assertRefused(401, "is not signed by its provider", f"{head}.{payload}.{signature}")

    def test_embedded_key(self) -> None:
        """
        A key, or the address of one, inside the token is not looked at.
        """
        header = {
            "jwk": OTHER_RSA.as_dict(private=False),
            "jku": "https://evil.example.net/keys",
            "x5u": "https://evil.example.net/cert",
        }

        self.assertRefused(401, "is not signed by", self.openid.token(OTHER_RSA, header=header))
        self.assertEqual({"/.well-known/openid-configuration", "/keys"}, set(self.openid.asked))

    def test_wrong_claims_are_refused_in_words(self) -> None:
        """
        Wrong audience, wrong time, no expiry, no subject: each is refused in words.
        """
        for words, claims in (
            ("'aud'", {"aud": "another"}),
            ("'aud'", {"aud": ["another", "third"]}),
            ("'aud'", {"aud": []}),
            ("aud", {"aud": None}),
            ("expired", {"exp": int(NOW) - 61}),
            ("exp", {"exp": None}),
            ("exp", {"exp": "tomorrow"}),
            ("exp", {"exp": True}),
            ("too large", {"exp": 10**400}),
            ("not yet valid", {"nbf": int(NOW) + 120}),
            ("in the future", {"iat": int(NOW) + 120}),
            ("sub", {"sub": None}),
            ("was given to 'shop'", {"aud": ["msgnode", "other"], "azp": "shop"}),
            ("has not verified", {"email_verified": False}),
            ("has not verified", {"email_verified": None}),
            ("has no 'email'", {"email": None}),
            ("has no 'email'", {"email": "a b@example.org"}),
            ("has no 'email'", {"email": "a\n@example.org"}),
            ("more than 512", {"email": "a" * 600}),
        ):
            self.assertRefused(401, words, self.openid.token(**claims))

    def test_several_audiences(self) -> None:
        """
        A token for several is believed if one of ours asked for it.
        """
        self.validate(self.openid.token(aud=["msgnode", "other"], azp="msgnode"))
        self.validate(self.openid.token(aud=["msgnode"], azp="app"))

    def test_only_configured_issuers_are_believed(self) -> None:
        """
        Nobody but the configured issuers is believed, nor asked, however similar the name.
        """
        for issuer in ("https://evil.example.net", "https://id.example.org/", "http://id.example.org"):
            other = OpenID(issuer)
            self.assertRefused(403, f"is from {issuer!r}", other.token())
        self.assertEqual({}, self.openid.asked)

    def test_what_is_no_token_at_all_is_refused_and_nobody(self) -> None:
        """
        What is no token at all is refused, and nobody is asked about it.
        """
        for token in (
            "",
            "x",
            "a.b.c",
            "...",
            "e30.e30.e30",
            "W10.e30.e30",
            "\udc80.a.b",
            b64encode(b"{}").decode(),
            b64encode(b'{"tokenID": 5}').decode(),
            b64encode(b"[" * 5000).decode(),
            "A" * (MAX_TOKEN_CHARS + 1),
            "mnd_" + "x" * 43,
        ):
            self.assertEqual(401, self.refusal(token)[0], token[:40])
        self.assertEqual({}, self.openid.asked)


class TimeTests(IdentityCase):
    """
    Clocks.
    """

    def test_clocks_may_differ_by_a_minute(self) -> None:
        """
        Clocks may differ by a minute.
        """
        self.validate(self.openid.token(exp=int(NOW) - 59))
        self.validate(self.openid.token(nbf=int(NOW) + 59, iat=int(NOW) + 59))

    def test_token_that_was_good_is_good_no_longer_when_its_time(self) -> None:
        """
        A token that was good is good no longer when its time is over, though it is known.
        """
        token = self.openid.token()
        self.validate(token)
        self.bench.wall += 659
        self.validate(token)
        self.bench.wall += 1

        self.assertEqual((401, "the token has expired"), self.refusal(token))

    def test_clock_moved(self) -> None:
        """
        A clock that is set back makes a token of then good again, and one of now not yet.
        """
        token = self.openid.token()
        self.bench.wall = NOW + 5000
        self.assertEqual(401, self.refusal(token)[0])
        self.bench.wall = NOW
        self.validate(token)
        self.bench.wall = NOW - 5000
        later = self.openid.token(sub="other", iat=int(NOW), exp=int(NOW) + 600)

        self.assertIn("in the future", self.refusal(later)[1])


class RotationTests(IdentityCase):
    """
    New keys.
    """

    def setUp(self) -> None:
        super().setUp()
        self.old = self.openid.token()
        self.validate(self.old)

    def test_new_key(self) -> None:
        """
        A token that is signed with a new key is believed at once, and the old key no longer.
        """
        self.openid.rotate()

        self.assertEqual(ANN, self.validate(self.openid.token()).proof.user)
        self.bench.advance(UNKNOWN_KEY_SECONDS)
        self.assertEqual(401, self.refusal(self.openid.token(RSA, sub="late"))[0])
        self.bench.advance(UNKNOWN_KEY_SECONDS)
        self.assertEqual(401, self.refusal(self.old)[0])

    def test_new_key_after_one_made_up(self) -> None:
        """
        A new key within a minute of one that was made up: its bearer is told to come back, then believed.
        """
        self.assertEqual(401, self.refusal(self.openid.token(header={"kid": "x"}))[0])
        self.openid.rotate()
        token = self.openid.token()
        self.assertEqual(503, self.refusal(token)[0])
        self.bench.advance(UNKNOWN_KEY_SECONDS)

        self.assertEqual(ANN, self.validate(token).proof.user)

    def test_withdrawn(self) -> None:
        """
        A token that is used again and again is not believed on the word of a key that has gone.
        """
        token = self.openid.token(exp=int(self.bench.wall) + 10 * 86400)
        self.validate(token)
        self.openid.rotate()
        self.bench.advance(3600)
        self.validate(token)  # meanwhile the keys are fetched
        self.bench.pump()

        self.assertEqual(401, self.refusal(token)[0])

    def test_new_key_without_a_name(self) -> None:
        """
        Where keys have no names a signature by none of them is reason to look again, once a minute.
        """
        bench = Bench()
        first, second, stranger = (ECKey.generate_key("P-256") for _ in range(3))
        bench.openid.keys = [first]
        bench.tokens.start()
        bench.pump()
        bench.openid.keys = [second]
        found = bench.tokens.validate(bench.openid.token(second, "ES256"))
        bench.pump()
        self.assertEqual(ANN, self.successResultOf(found).proof.user)

        for _ in range(5):
            with self.assertRaises(Rejected):
                bench.tokens.validate(bench.openid.token(stranger, "ES256"))
        self.assertEqual(2, bench.openid.asked["/keys"])

    def test_both_keys(self) -> None:
        """
        While both keys are published, both are good.
        """
        self.openid.rotate(keep=True)

        self.validate(self.openid.token())
        self.validate(self.old)

    def test_no_storm(self) -> None:
        """
        However many unknown keys are named, the provider is asked once a minute.
        """
        strangers = [ECKey.generate_key("P-256", {"kid": f"stranger-{n}"}) for n in range(20)]
        for stranger in strangers * 5:
            self.assertIn(
                "a key that its provider does not have", self.refusal(self.openid.token(stranger))[1]
            )
        self.assertEqual(2, self.openid.asked["/keys"])
        self.bench.advance(UNKNOWN_KEY_SECONDS)
        for stranger in strangers:
            self.refusal(self.openid.token(stranger))

        self.assertEqual(3, self.openid.asked["/keys"])

    def test_storm_does_not_keep_others_out(self) -> None:
        """
        Tokens with known keys are looked at while somebody makes up key names.
        """
        self.refusal(self.openid.token(ECKey.generate_key("P-256", {"kid": "x"})))

        self.validate(self.openid.token(sub="bob"))

    def test_cache_control(self) -> None:
        """
        Keys are fetched again when they are as old as the provider said, within five minutes and a day.
        """
        for max_age, kept in ((60, 300), (1000, 1000), (10**7, 86400), (None, 3600)):
            bench = Bench()
            bench.openid.max_age = max_age
            bench.tokens.start()
            bench.pump()
            bench.advance(kept - 1)
            bench.tokens.validate(bench.openid.token(sub="a"))
            bench.pump()
            self.assertEqual(1, bench.openid.asked["/keys"], max_age)
            bench.advance(1)
            self.assertIsInstance(bench.tokens.validate(bench.openid.token(sub="b")), VerifiedToken)
            bench.pump()
            self.assertEqual(2, bench.openid.asked["/keys"], max_age)


class TroubleTests(IdentityCase):
    """
    A provider that is down, slow, or talks nonsense.
    """

    def test_provider_that_is_not_there_is_504_and_is_left_alone(self) -> None:
        """
        A provider that is not there is 504, and is left alone for ten seconds.
        """
        self.bench.provider_wires.refuse = ConnectionRefusedError()
        self.assertEqual(504, self.refusal(self.openid.token())[0])
        dialled = self.bench.provider_wires.dialled
        self.assertEqual(504, self.refusal(self.openid.token())[0])
        self.assertEqual(dialled, self.bench.provider_wires.dialled)
        self.bench.provider_wires.refuse = None
        self.bench.advance(RETRY_SECONDS)

        self.assertEqual(ANN, self.validate(self.openid.token()).proof.user)

    def test_provider_that_never_answers_is_504(self) -> None:
        """
        A provider that never answers is 504 when the deadline passes.
        """
        self.bench.provider_wires.refuse = "hang"
        found = self.tokens.validate(self.openid.token())
        self.bench.advance(4.9)
        self.assertNoResult(found)
        self.bench.advance(0.2)

        self.assertEqual(504, self.failureResultOf(found, Rejected).value.code)

    def test_keys_that_are_none_are_503_and_what_the_provider(self) -> None:
        """
        Keys that are none are 503, and what the provider said goes no further.
        """
        for broken in (
            b"",
            b"<html>secret</html>",
            b"[]",
            b"{}",
            b'{"keys": {}}',
            b'{"keys": []}',
            b'{"keys": [{"kty": "secret"}]}',
            b'{"keys": [{"kty": "RSA", "n": 5, "e": null}]}',
            b"[" * 100_000,
            b'{"keys": ' + json.dumps([{"kty": "x"}] * 101).encode() + b"}",
        ):
            bench = Bench()
            bench.openid.broken = broken
            found = bench.tokens.validate(bench.openid.token())
            bench.pump()
            why = self.failureResultOf(found, Rejected).value
            self.assertEqual(503, why.code, broken[:40])
            self.assertNotIn("secret", str(why))

    def test_provider_that_sends_megabytes_is_cut_off(self) -> None:
        """
        A provider that sends megabytes is cut off.
        """
        self.openid.broken = b" " * 1_100_000

        self.assertEqual(503, self.refusal(self.openid.token())[0])

    def test_error_page_is_no_keys_whatever_its_status(self) -> None:
        """
        An error page is no keys, whatever its status.
        """
        for status in (302, 401, 404, 500):
            bench = Bench()
            bench.openid.status = status
            found = bench.tokens.validate(bench.openid.token())
            bench.pump()
            self.assertEqual(503, self.failureResultOf(found, Rejected).value.code)

    def test_another_issuer(self) -> None:
        """
        A discovery document that is somebody else's is not followed.
        """
        self.openid.metadata["issuer"] = "https://evil.example.net"

        self.assertEqual(503, self.refusal(self.openid.token())[0])
        self.assertNotIn("/keys", self.openid.asked)

    def test_unsafe_keys(self) -> None:
        """
        Keys are not fetched in plain text from a provider that is called over TLS, nor where no keys can be.
        """
        for uri in ("http://id.example.org/keys", "http://localhost/keys", "file:///etc/passwd", "", 5, None):
            bench = Bench()
            bench.openid.metadata["jwks_uri"] = uri
            found = bench.tokens.validate(bench.openid.token())
            bench.pump()
            self.assertEqual(503, self.failureResultOf(found, Rejected).value.code, uri)
            self.assertEqual(["/.well-known/openid-configuration"], list(bench.openid.asked))

    def test_last_good_keys(self) -> None:
        """
        While the provider is down the keys of before do, for a day after they should have been fetched anew.
        """
        self.validate(self.openid.token())
        self.bench.provider_wires.refuse = ConnectionRefusedError()
        for _ in range(24):
            self.bench.advance(3600)
            self.validate(self.openid.token())
        self.bench.advance(3600)

        self.assertEqual(504, self.refusal(self.openid.token())[0])

    def test_one_bad_key(self) -> None:
        """
        A key that nobody understands does not spoil the others.
        """
        keys = [{"kty": "PQ", "kid": "new"}, {"kty": "RSA", "n": "!"}, 5, RSA.as_dict(private=False)]
        self.openid.broken = json.dumps({"keys": keys}).encode()

        self.validate(self.openid.token())

    def test_operator_is_told_once_that_a_provider_fails(self) -> None:
        """
        The operator is told once that a provider fails, and once that it is well; no token is in the log.
        """
        said: list[Any] = []
        globalLogPublisher.addObserver(said.append)
        self.addCleanup(globalLogPublisher.removeObserver, said.append)
        self.openid.status = 500
        token = self.openid.token()
        for _ in range(3):
            self.refusal(token)
            self.bench.advance(RETRY_SECONDS)
        self.openid.status = 200
        self.validate(token)

        texts = [event["log_format"] for event in said if event["log_namespace"].startswith("msgnode")]
        self.assertEqual(
            [
                "the signing keys of {issuer} cannot be fetched: {why}",
                "the signing keys of {issuer} can be fetched again",
            ],
            texts,
        )
        self.assertNotIn(token, repr(said))


class OverrideTests(IdentityCase):
    """
    A provider without discovery.
    """

    options = {"jwks_uri": "https://id.example.org/keys", "user_url": "user://{domain}/{sub}"}

    def test_keys_uri(self) -> None:
        """
        With `jwks_uri` nothing is discovered; the user's name may come from another claim.
        """
        proof = self.validate(self.openid.token(email=None)).proof

        self.assertEqual(("user://example.org/ann-1", "ann-1"), (proof.user, proof.username))
        self.assertEqual({"/keys": 1}, self.openid.asked)
