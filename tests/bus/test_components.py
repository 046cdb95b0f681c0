"""
The registry of connectors, and node addresses that are served or answered where the node has no back end.
"""

import json
from collections import deque
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.policy.administration.document_edit import load
from tests.support.durable import DurableNode
from tests.support.fakes import Client, MemoryNode, directory
from tests.support.made_policies import document, files, rule, use
from tests.support.network import Network
from tests.support.openid import provider
from tests.support.registry import RegistryNode
from tests.support.runtimes import WebSocketRuntime
from tests.support.world import World

LIST = "domain://msg-node.example.org/connectors"
REGISTRY = "domain://registry.example.org"
SM = "domain://msg-node.example.org/sm"
NAMED = {"msgTo": {"equals": LIST}}


class ListTests(SynchronousTestCase):
    """
    `read` at domain://msg-node.<domain>/connectors
    """

    def ask(self, node: Any, type: str = "read") -> dict[str, Any]:
        return node.client("runtime://example.org/a").ask(type=type, to=LIST)["body"]

    def test_nobody_reads_the_list_whom_no_rule_names(self) -> None:
        """
        Neither without policies nor by a rule that permits everything.
        """
        node = MemoryNode()
        answers = [self.ask(node)]
        for rules in (
            [rule("permit")],
            [rule("permit", {"dstSPDomain": {"equals": "msg-node.example.org"}})],
        ):
            use(node, *rules)
            answers.append(self.ask(node))

        self.assertEqual([403] * 3, [answer["code"] for answer in answers])
        self.assertIn("only clients that a policy names", answers[0]["desc"])

    def test_a_rule_names_who_reads_it_whatever_rules_follow(self) -> None:
        """
        A rule that permits all the rest takes nothing from the one that permits the list; without
        enforcement none does anything.
        """
        node = MemoryNode()
        use(node, rule("permit", NAMED), rule("permit"), algorithm="firstApplicable")

        codes = [self.ask(node)["code"]]
        node.config.policy.enforce = False
        codes.append(self.ask(node)["code"])

        self.assertEqual([200, 403], codes)

    def test_the_list_has_connectors_responders_and_back_ends(self) -> None:
        """
        With their state and figures, as the node is wired.
        """
        node = RegistryNode()
        node.components.call(node.rest)
        use(node, rule("permit", NAMED))

        found = {(each["kind"], each["name"]): each for each in self.ask(node)["value"]}

        self.assertEqual(1, found["connector", "memory"]["connections"])
        manager = found["responder", "subscription manager"]
        self.assertEqual(
            (["domain://msg-node.example.org/sm"], "up"), (manager["addresses"], manager["state"])
        )
        self.assertEqual(1, found["responder", "connectors"]["requests"])
        registry = found["back end", "domain registry"]
        self.assertEqual(("up", 0), (registry["state"], registry["requests"]))

    def test_the_list_says_where_the_node_listens_and_whom_it_gave_up(self) -> None:
        """
        A listener that is not there is down, a back end whose circuit is open is paused.
        """
        node = RegistryNode()
        use(node, rule("permit", NAMED))
        for where in ("127.0.0.1:9090", ""):
            node.components.listeners.append(Listener("web", where))
        node.components.call(Silent())

        listed = self.ask(node)["value"]

        states = [(each["name"], each["state"]) for each in listed if each["kind"] != "responder"]
        self.assertEqual([("web", "up"), ("web", "down")], states[:2])
        self.assertIn(("silent", "paused"), states)

    def test_only_reading_is_offered(self) -> None:
        """
        Anything else is 501, in words.
        """
        node = MemoryNode()
        use(node, rule("permit", NAMED))

        answer = self.ask(node, "create")

        self.assertEqual((501, "connectors understand read, not 'create'"), (answer["code"], answer["desc"]))

    def test_a_responder_that_is_offered_again_takes_its_own_place(self) -> None:
        """
        After a reload there is one identity, and the router finds the new one.
        """
        node = MemoryNode(world=World, identity={"auth": "optional", "providers": [provider()]})
        before = node.responders["domain://idm.example.org"]
        node.world.offer(node)
        use(node, rule("permit", NAMED))

        listed = [each for each in self.ask(node)["value"] if each["name"] == "identity"]

        self.assertEqual(1, len(listed))
        self.assertIsNot(before, node.responders["domain://idm.example.org"])


class Listener:
    """
    As the list sees one.
    """

    def __init__(self, kind: str, where: str) -> None:
        self.kind, self.where = kind, where


class Silent:
    """
    A back end that was given up.
    """

    name = "silent"
    counts: Any = {"silent": 5}
    latest: Any = deque([1.0])
    url = "https://silent.example.org"
    since = 0.0
    under_way = queued = 0
    down = True


class IdentityTests(SynchronousTestCase):
    """
    domain://idm.<domain> at a node that looks at no tokens.
    """

    def test_identity_always_answers(self) -> None:
        """
        404 to who asks for somebody, 501 to who asks for something to be done, both in words.
        """
        node = MemoryNode(world=World)
        client = node.client("runtime://example.org/a")

        for to in ("domain://idm.example.org", "domain://msg-node.example.org/idm"):
            read = client.ask(type="read", to=to, body={"resource": "/identity/user://example.org/a"})["body"]
            asked = client.ask(type="execute", to=to, body={"method": "validateAssertion"})["body"]
            self.assertEqual((404, 501), (read["code"], asked["code"]))
            self.assertIn("authenticates no clients", read["desc"])
            self.assertIn("no identity provider is configured here", asked["desc"])
            self.assertEqual(501, client.ask(type="update", to=to, body={})["body"]["code"])

    def test_what_identity_does_not_understand_is_answered_501(self) -> None:
        """
        Also where tokens are looked at, whatever the type, by each of its addresses.
        """
        node = MemoryNode(world=World, identity={"auth": "optional", "providers": [provider()]})
        client = node.client("runtime://example.org/a")

        for to in (
            "domain://idm.example.org",
            "domain://msg-node.example.org/idm/",
            "domain-idp://example.org",
        ):
            for type in ("update", "create", "delete", "dance"):
                told = client.ask(type=type, to=to, body={})["body"]
                self.assertEqual((501, True), (told["code"], "understands execute and read" in told["desc"]))


class AbsentTests(SynchronousTestCase):
    """
    Registries that are not there.
    """

    def test_every_request_is_answered(self) -> None:
        """
        An update too, as runtimes keep alive by it; a response is not.
        """
        node = MemoryNode(registry={"url": "none"}, global_registry={"url": "none"})
        client = node.client("runtime://example.org/a")

        for to in (REGISTRY, f"{REGISTRY}/", "global://registry/"):
            for type in ("update", "read", "UPDATE"):
                self.assertEqual(501, client.ask(type=type, to=to, body={})["body"]["code"])
            client.post(to, "response")
        client.post("domain://weather.example.org", "update")

        self.assertEqual([], client.take())


class ServedTests(SynchronousTestCase):
    """
    domain://registry.<domain> where `registry = none`: a session may serve it that a policy names.
    """

    RULE = rule(
        "permit", {"msgTo": {"equals": REGISTRY}, "session": {"equals": "runtime://example.org/registry"}}
    )

    def setUp(self) -> None:
        self.node = MemoryNode(registry={"url": "none"})
        self.server = self.node.client("runtime://example.org/registry")
        self.client = self.node.client("runtime://example.org/a")

    def serve(self, client: Client | None = None) -> int:
        client = client or self.server
        return client.ask(type="subscribe", to=SM, body={"resources": [REGISTRY]})["body"]["code"]

    def test_a_session_that_a_rule_names_serves_the_registry(self) -> None:
        """
        It gets the requests, and its answers reach who asked.
        """
        use(self.node, self.RULE)
        self.assertEqual(200, self.serve())

        self.client.post(REGISTRY, "read", id=3)
        self.assertEqual([3], [message["id"] for message in self.server.take()])
        answer = {"id": 3, "type": "response", "from": REGISTRY, "to": "runtime://example.org/a/x"}
        self.server.tell({**answer, "body": {"code": 200}})

        self.assertEqual([3], [message["id"] for message in self.client.take()])

    def test_nobody_else_serves_the_registry(self) -> None:
        """
        Not without a rule, not by one that permits everything, and not where the node has a registry.
        """
        codes = [self.serve()]
        use(self.node, rule("permit"))
        codes.append(self.serve())
        use(self.node, self.RULE)
        codes.append(self.serve(self.client))
        self.node = MemoryNode()
        use(self.node, self.RULE)
        codes.append(self.serve(self.node.client("runtime://example.org/registry")))

        self.assertEqual([403] * 4, codes)

    def test_a_rule_that_permits_the_rest_takes_nothing_from_the_one_before(self) -> None:
        """
        The registry is served by whom a rule names, though others may do everything else.
        """
        use(self.node, self.RULE, rule("permit"), algorithm="firstApplicable")

        self.assertEqual([200, 403], [self.serve(), self.serve(self.client)])

    def test_nobody_else_speaks_for_the_registry_that_is_served(self) -> None:
        """
        An answer in its name is its server's own, however the name is spelt; nobody's while none serves it.
        """
        names = (REGISTRY, f"{REGISTRY}/", f"{REGISTRY}/x", "Domain://Registry.example.org")
        to = "runtime://example.org/registry/x"
        for rules in ((), (self.RULE,)):
            use(self.node, *rules)
            self.assertEqual(200 if rules else 403, self.serve())
            for name in names:
                for type in ("response", "update", "read"):
                    self.client.tell({"id": 4, "type": type, "from": name, "to": to, "body": {}})
                self.assertEqual([403] * 2, [message["body"]["code"] for message in self.client.take()])

        self.assertEqual([], self.server.take())

    def test_a_registry_of_the_nodes_own_is_not_served_by_who_served_it_before(self) -> None:
        """
        With another configuration after a restart the binding of before is void.
        """
        where = directory(self)
        node = DurableNode(where, Clock(), registry={"url": "none"})
        node.enforcement.use(load(files(document(self.RULE))), 1)
        client = node.client("runtime://example.org/registry")
        client.post(SM, "subscribe", body={"resources": [REGISTRY]})
        node.clock.advance(1)
        self.assertEqual(1, len(node.routes.resolve(REGISTRY)))
        node.sections = {"registry": {"url": "embedded"}}

        again = node.killed()

        self.addCleanup(again.store.shut)
        self.addCleanup(again.spool.close)
        self.assertEqual((), again.routes.resolve(REGISTRY))


class InnerFailureTests(SynchronousTestCase):
    """
    A message within a message, at domain://msg-node.<domain>/policy.
    """

    def test_what_is_wrong_within_is_the_requests_own_failure(self) -> None:
        """
        By WebSocket, too, the request is answered itself, with 400 and what is wrong.
        """
        net = Network(
            identity={"auth": "optional", "providers": [provider()]},
            policy={"managers": ["user://example.org/ann@example.org"]},
        )
        manager = WebSocketRuntime(
            net,
            "runtime://example.org/manager",
            headers={"Authorization": f"Bearer {net.node.world.openid.token()}"},
        ).open()
        for inner in (
            {},
            {"id": 1},
            {"id": 5, "type": "x", "to": [], "from": "y"},
            3,
            {"id": 1, "type": "t", "to": "x", "body": 3},
        ):
            with self.subTest(inner=inner):
                body = {
                    "method": "explain",
                    "params": {"message": inner, "document": document(rule("permit"))},
                }
                request = {"id": 9, "type": "execute", "from": f"{manager.url}/pm", "body": body}
                manager.send({**request, "to": "domain://msg-node.example.org/policy"})
                net.advance(1)

                (answer,) = manager.take()

                self.assertEqual((9, 400), (answer["id"], answer["body"]["code"]), json.dumps(answer))
                self.assertEqual("domain://msg-node.example.org/policy", answer["from"])
                self.assertTrue(answer["body"]["desc"].startswith("'message': "), answer)
