"""
Whoever asks a back end, and what nobody foresaw: all are answered, nothing is lost, the log stays short.
"""

import json
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.backends.http_client import Response
from msgnode.backends.identity.oidc_provider import RETRY_SECONDS as KEYS_AGAIN
from msgnode.backends.identity.opaque_tokens import OpaqueTokens
from msgnode.backends.identity.token_validator import Tokens
from msgnode.backends.registry.disconnector import RETRY_SECONDS
from msgnode.backends.registry.status import RegistryPoller
from msgnode.policy.administration.policy_store import PolicyStore
from msgnode.policy.administration.source import Documents
from msgnode.protocol.close_codes import TOKEN_LATER
from msgnode.protocol.errors import FAILED, Rejected
from msgnode.service.wiring import add_disconnector, add_domain_registry, add_global_registry
from msgnode.sessions.principal import Principal, VerifiedToken
from tests.backends.identity.test_introspection import ASK, SILENT, TOKEN
from tests.support.back_ends import Broken, Unforeseen
from tests.support.fakes import MemoryNode
from tests.support.made_policies import document, rule
from tests.support.openid import provider
from tests.support.registry import GLOBAL, RegistryNode
from tests.support.world import World

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
H1, H2 = "hyperty://example.org/1", "hyperty://example.org/2"
QOS = "domain://qos-broker.example.org"
AFTER = 10  # seconds between a session's end and what is told of it


class UnforeseenCase(SynchronousTestCase):
    """
    Failures of a class of their own, which the log must not be full of.
    """

    def assertLoggedOnce(self) -> None:
        self.assertEqual(1, len(self.flushLoggedErrors(Unforeseen)))


class DomainTests(UnforeseenCase):
    """
    The domain registry: requests, farewells, the poll.
    """

    def setUp(self) -> None:
        self.node = RegistryNode()
        self.rest = Broken(self.node.rest)
        self.registry = add_domain_registry(self.node, self.rest)
        self.farewell = add_disconnector(self.node, self.registry, self.node.clock)
        self.rest.broken = False
        self.ann = self.node.client(ANN)

    def test_each_request_is_answered_503_a_keep_alive_too(self) -> None:
        """
        Each request is answered 503, a keep-alive too, and works again later.
        """
        self.ann.register(H1)
        self.rest.broken = True
        value = {"url": H2, "user": "ann", "descriptor": "d"}
        for type, body in (
            ("update", {"resource": H1}),
            ("update", {"resource": H1, "value": {"status": "live"}, "method": "refresh"}),
            ("read", {"resource": H1}),
            ("create", {"value": value}),
            ("delete", {"value": value}),
            ("delete", {"value": {"name": "room"}}),
        ):
            reply = self.ann.request(type, body)["body"]

            self.assertEqual({"code": 503, "description": FAILED, "desc": FAILED}, reply)
        self.assertLoggedOnce()
        self.rest.broken = False
        self.assertEqual(200, self.ann.code("update", {"resource": H1}))

    def test_farewells(self) -> None:
        """
        What a session had registered is disconnected in the end, however often it could not be told.
        """
        self.ann.register(H1)
        self.ann.register(H2)
        self.rest.broken = True
        self.ann.close()
        self.node.wait(AFTER)
        for _ in range(3):
            self.node.wait(RETRY_SECONDS)
        self.assertLoggedOnce()
        self.rest.broken = False

        self.node.wait(RETRY_SECONDS)

        bob = self.node.client(BOB)
        statuses = [bob.request("read", {"resource": url})["body"]["value"]["status"] for url in (H1, H2)]
        self.assertEqual(["disconnected"] * 2, statuses)

    def test_poll_that_fails_is_followed_by_the_next(self) -> None:
        """
        A poll that fails is followed by the next.
        """
        told: list[str] = []
        poller = RegistryPoller(self.rest, lambda url, status: told.append(url), 5, self.node.clock)
        poller.startService()
        self.addCleanup(poller.stopService)
        self.ann.register(H1, expires=1)
        self.rest.broken = True
        self.node.wait(5)
        self.node.wait(5)
        self.rest.broken = False
        self.node.records.sweep()

        self.node.wait(5)

        self.assertEqual([H1], told)
        self.assertLoggedOnce()

    def test_one_of_the_poll(self) -> None:
        """
        Of several changes one that cannot be told takes no other with it: the registry has forgotten them.
        """
        told: list[str] = []

        def changed(url: str, status: object) -> None:
            if url == H1:
                raise Unforeseen("strange")
            told.append(url)

        rows = {H1: {"status": "disconnected"}, H2: {"status": "disconnected"}}

        class Told:
            """
            A registry that answers so.
            """

            async def request(self, method: str, path: str) -> Response:
                return Response(200, None, json.dumps(rows).encode(), None)  # type: ignore[arg-type]

        poller = RegistryPoller(Told(), changed, 5, self.node.clock)  # type: ignore[arg-type]
        poller.startService()
        self.addCleanup(poller.stopService)
        self.node.wait(5)

        self.assertEqual([H2], told)
        self.assertLoggedOnce()


class GlobalTests(UnforeseenCase):
    """
    The global registry.
    """

    def test_each_request_is_answered_503_in_both_spellings(self) -> None:
        """
        Each request is answered 503, in both spellings.
        """
        node = RegistryNode(global_registry={"verify": False})
        add_global_registry(node, Broken(node.rest), lambda function, *arguments: function(*arguments))  # type: ignore
        ann = node.client(ANN)

        for _ in range(3):
            reply = ann.request("read", {"guid": "x"}, to=GLOBAL)["body"]

            self.assertEqual((503, 503, FAILED), (reply["Code"], reply["code"], reply["Description"]))
        self.assertLoggedOnce()


class OtherTests(UnforeseenCase):
    """
    The QoS broker, and providers of identity.
    """

    def test_strange_broker_failure_is_told_as_the_nodes(self) -> None:
        """
        Who asks for a TURN server is told that the node failed.
        """
        options = {"url": "https://qos.example.org", "csp": "example"}
        node = MemoryNode(world=World, qos=options)
        node.world.broker_wires.refuse = Unforeseen("strange")
        client = node.client(ANN)

        for _ in range(3):
            client.tell(
                {"id": 7, "type": "create", "from": f"{ANN}/q", "to": QOS, "body": {"resource": "/turn"}}
            )
            node.world.pump()

            self.assertEqual(504, client.take()[-1]["body"]["code"])
        self.assertLoggedOnce()

    def test_tokens_whose_keys_cannot_be_had_are_told_to_come(self) -> None:
        """
        Tokens whose keys cannot be had are told to come later, and are good when the keys are there.
        """
        node = MemoryNode(world=World, identity={"auth": "required", "providers": [provider()]})
        node.world.provider_wires.refuse = Unforeseen("strange")
        token = node.world.openid.token()
        for _ in range(3):
            found = node.world.tokens.validate(token)
            node.world.pump()

            self.assertEqual(504, self.failureResultOf(found, Rejected).value.code)
            node.clock.advance(KEYS_AGAIN)
        self.assertLoggedOnce()

    def test_provider_that_fails_strangely_is_as_silent(self) -> None:
        """
        A provider that fails strangely is as one that is silent; the next is asked all the same.
        """
        claim = VerifiedToken(Principal("user://example.org/ann"))
        asked: list[Any] = [Asked(Unforeseen("strange")), Asked(claim)]

        found = OpaqueTokens(asked, Clock(), lambda: 0.0).validate(TOKEN, b"key")

        self.assertIs(claim, self.successResultOf(found))
        self.assertLoggedOnce()

    def test_nobody_else_to_ask(self) -> None:
        """
        Where no other knows the token, its bearer is told to come later.
        """
        asked: list[Any] = [Asked(Unforeseen("strange")), Asked(None)]

        found = OpaqueTokens(asked, Clock(), lambda: 0.0).validate(TOKEN, b"key")

        why = self.failureResultOf(found, Rejected).value
        self.assertEqual((503, SILENT), (why.code, str(why)))
        self.assertLoggedOnce()

    def test_failing_validator_lets_nobody_in(self) -> None:
        """
        A validator that fails, now or later, lets nobody in, and tells them to come later.
        """
        for later in (False, True):
            identity = {"auth": "required", "providers": [provider(introspection=ASK)]}
            node = MemoryNode(world=lambda *how, later=later: Doorless(later, *how), identity=identity)
            for _ in range(2):
                client = node.client()
                client.tell(
                    {"id": 1, "type": "open", "from": ANN, "to": "mn:/session", "body": {"token": "x.y"}}
                )
                node.clock.advance(5)

                self.assertEqual(TOKEN_LATER.code, client.lost.code if client.lost else None)
            self.assertLoggedOnce()


class PolicyTests(UnforeseenCase):
    """
    Where policies come from.
    """

    def test_failing_policy_source_leaves_policies_as_they_are(self) -> None:
        """
        A source that fails strangely leaves the policies as they are, and says so until it does not.
        """
        node = MemoryNode(policy={"source": "https://policies.example.org/all.json"})
        source = Source()
        policies = PolicyStore(node.config.policy, node.enforcement, source, None, node.clock)
        policies.startService()
        self.addCleanup(policies.stopService)
        self.assertEqual("", policies.wrong)
        source.why = Unforeseen("strange")
        for _ in range(3):
            node.clock.advance(60)

            self.assertIn("could not be polled: Unforeseen", policies.wrong)
        self.assertLoggedOnce()
        source.why = None
        node.clock.advance(60)
        self.assertEqual("", policies.wrong)

    def test_what_failed_to_be_taken_is_read_again(self) -> None:
        """
        A document that could not be taken for a strange reason is not mistaken for one that is live.
        """
        node = MemoryNode(policy={"source": "https://policies.example.org/all.json"})
        source = OnceOnly()
        policies = PolicyStore(node.config.policy, node.enforcement, source, None, node.clock)
        policies.startService()
        self.addCleanup(policies.stopService)
        self.assertIn("could not be polled", policies.wrong)

        source.says = json.dumps(document(rule("permit"))).encode()
        node.clock.advance(60)

        self.assertEqual("", policies.wrong)
        self.assertIsNotNone(policies.live)
        self.assertEqual(1, len(self.flushLoggedErrors(AttributeError)))


class Asked:
    """
    In the place of a provider that is asked about tokens: what it says, or what it fails with.
    """

    def __init__(self, says: Any) -> None:
        self._says = says

    async def ask(self, token: str) -> Any:
        if isinstance(self._says, Exception):
            raise self._says
        return self._says


class Source:
    """
    Policies that are always there, unless there is a `why`.
    """

    name = "somewhere"
    why: Exception | None = None

    def look(self) -> Deferred[Documents | None]:
        found: Deferred[Documents | None] = Deferred()
        if self.why is not None:
            return fail(self.why)
        found.callback([("all", json.dumps(document(rule("permit"))).encode())])
        return found

    def forget(self) -> None:
        pass


class OnceOnly(Source):
    """
    Policies that are read once, until they are forgotten; at first they are nothing that can be read.
    """

    says: Any = None
    given = False

    def look(self) -> Deferred[Documents | None]:
        if self.given:
            return succeed(None)
        self.given = True
        return succeed([("all", self.says)])

    def forget(self) -> None:
        self.given = False


class Doorless(World):
    """
    A world whose tokens cannot be looked at.
    """

    def __init__(self, later: bool, *how: Any) -> None:
        super().__init__(*how)
        self.tokens = Unlookable(later, self.tokens)


class Unlookable:
    """
    In the place of a validator.
    """

    def __init__(self, later: bool, tokens: Tokens) -> None:
        self._later = later
        self._tokens = tokens

    def validate(self, token: str) -> Any:
        if self._later:
            return fail(Unforeseen("strange"))
        raise Unforeseen("strange")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokens, name)
