"""
The reTHINK project's conformance cases for messaging nodes, in our own words.

Case 29 as published cannot be passed; ours is what it means to say: a change of
an entity's status reaches who subscribed to it, from another runtime.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.made_policies import rule, use
from tests.support.network import Network
from tests.support.registry import RegistryNode
from tests.support.runtimes import WebSocketRuntime
from tests.support.vertx_stub import LateVertxStub, VertxStub

D = "example.org"
P = f"hyperty-runtime://{D}/protostub/1"
RUNTIME = f"runtime://{D}/1"
A = f"domain://msg-node.{D}/address-allocation"
SM = f"domain://msg-node.{D}/sm"
REGISTRY = f"domain://registry.{D}"
USER = f"user://{D}/user-1"


class Case(SynchronousTestCase):
    """
    Stubs against one node.
    """

    net: Any

    def setUp(self) -> None:
        self.start()

    def start(self, **sections: Any) -> None:
        """
        A new node, with these sections of the configuration file.
        """
        self.net = Network(domain=D, **sections)

    def start_with_registry(self) -> None:
        self.net = Network(RegistryNode(domain=D))

    def use(self, *rules: dict[str, Any]) -> None:
        use(self.net.node, *rules)

    def at(self, runtime: str) -> Network:
        """
        The network of the node that serves this runtime.
        """
        found: Network = self.net
        return found

    def stub(self, url: str = P, runtime: str = RUNTIME) -> VertxStub:
        """
        A stub that is live.
        """
        stub = VertxStub(self.at(runtime), url, runtime)
        stub.start()
        self.assertEqual(["created", "in-progress", "live"], stub.statuses)
        return stub

    def ask(self, stub: VertxStub, message: dict[str, Any]) -> dict[str, Any]:
        """
        Post a request; the next message on the bus is its answer, with code 200.
        """
        seen = len(stub.bus)
        stub.post(message)
        (reply,) = stub.bus[seen:]
        header = {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"]}
        self.assertEqual(header, {name: reply[name] for name in header})
        self.assertEqual(200, reply["body"]["code"])
        return reply["body"]

    def end(self, stub: VertxStub) -> None:
        stub.disconnect()
        self.assertEqual("disconnected", stub.statuses[-1])


class ViaTests(Case):
    """
    The stub of 2019, whose `via` holds its token.
    """

    def test_each_hears_the_other(self) -> None:
        """
        Nobody takes another's message for an echo, nobody hears its own, and no token is passed on.
        """
        stubs = [LateVertxStub(self.at(f"{RUNTIME}{n}"), f"{P}{n}", f"{RUNTIME}{n}") for n in range(2)]
        changes = f"comm://{D}/o/changes"
        for stub in stubs:
            stub.start()
            self.ask(
                stub,
                {"id": 1, "type": "subscribe", "from": stub.url, "to": SM, "body": {"resources": [changes]}},
            )
        plain = WebSocketRuntime(self.net, f"{RUNTIME}2").open()
        plain.ask(id=1, type="subscribe", to=SM, body={"resources": [changes]})
        seen = [len(stub.bus) for stub in stubs]

        stubs[0].post({"id": 5, "type": "update", "from": stubs[0].url, "to": changes, "body": {"value": 1}})
        stubs[1].post({"id": 6, "type": "update", "from": stubs[1].url, "to": changes, "body": {"value": 2}})

        heard = [[message["id"] for message in stub.bus[n:]] for stub, n in zip(stubs, seen, strict=True)]
        self.assertEqual([[6], [5]], heard)
        self.assertEqual(
            [f"{RUNTIME}{n}/{'*' * 47}" for n in range(2)], [m["body"]["via"] for m in plain.take()]
        )


class ConnectTests(Case):
    """
    Case 1, and what the stub does when the network fails.
    """

    def test_01_connect(self) -> None:
        """
        A stub becomes live and, told so, disconnected.
        """
        stub = self.stub()

        stub.disconnect()

        self.assertEqual(["created", "in-progress", "live", "disconnected"], stub.statuses)

    def test_posting_connects(self) -> None:
        """
        A message that is posted before the stub connects makes it connect, and arrives.
        """
        stub = VertxStub(self.net, P, RUNTIME)

        stub.post({"id": 1, "type": "create", "from": f"{P}/registry/allocation", "to": A, "body": {}})

        self.assertEqual(["created", "in-progress", "live"], stub.statuses)
        self.assertEqual(200, stub.bus[-1]["body"]["code"])

    def test_reopens(self) -> None:
        """
        A stub whose socket is lost re-opens at the next message, and has kept its addresses.
        """
        stub, other = self.stub(), self.stub(f"{P}0", f"{RUNTIME}0")
        body = {"scheme": "comm", "value": {"number": 1}}
        message = {"id": 1, "type": "create", "from": f"{P}/registry/allocation", "to": A, "body": body}
        (address,) = self.ask(stub, message)["value"]["allocated"]
        session = stub.session_url

        stub.drop()
        stub.post({"id": 2, "type": "ping", "from": address, "to": f"{RUNTIME}0/x"})
        other.post({"id": 3, "type": "pong", "from": f"{RUNTIME}0/x", "to": address})

        self.assertEqual(session, stub.session_url)
        self.assertEqual("live", stub.statuses[-1])
        self.assertEqual("ping", other.bus[-1]["type"])
        self.assertEqual("pong", stub.bus[-1]["type"])

    def test_after_disconnect(self) -> None:
        """
        A stub that was disconnected and says `open` without a name becomes live again.
        """
        stub = self.stub()
        self.end(stub)

        stub.start()

        self.assertEqual("live", stub.statuses[-1])


class AllocationCase:
    """
    Cases 2 to 7, and 8 to 13 for objects.
    """

    single = block = with_key = "hyperty"
    key = f"{P}/hyperty"

    def allocate(self: Any, stub: VertxStub, scheme: str, number: int, key: str = "") -> list[str]:
        value = {"number": number, **({"allocationKey": key} if key else {})}
        message = {"id": 1, "type": "create", "from": f"{P}/registry/allocation", "to": A}
        body = self.ask(stub, {**message, "body": {"scheme": scheme, "value": value}})
        allocated = body["value"]["allocated"]
        self.assertEqual(number, len(set(allocated)))
        for address in allocated:
            self.assertTrue(address.startswith(f"{scheme}://{D}/"), address)
        return allocated

    def release(self: Any, body: dict[str, Any]) -> None:
        """
        On a new connection, after the one that allocated has gone.
        """
        stub = self.stub()
        message = {"id": 2, "type": "delete", "from": f"{P}/registry/allocation", "to": A, "body": body}

        reply = self.ask(stub, message)

        self.assertEqual({"code": 200, "via": P}, reply)
        self.end(stub)

    def test_one_address_allocated_and_freed(self: Any) -> None:
        """
        Cases 2 and 3, 8 and 9: one address, and back.
        """
        stub = self.stub()
        (address,) = self.allocate(stub, self.single, 1)
        self.end(stub)

        self.release({"childrenResources": [address]})

    def test_three_addresses_freed_as_list_in_a_list(self: Any) -> None:
        """
        Cases 4 and 5, 10 and 11: three addresses, and back as a list in a list.
        """
        stub = self.stub()
        addresses = self.allocate(stub, self.block, 3)
        self.end(stub)

        self.release({"childrenResources": [addresses]})

    def test_block_with_key(self: Any) -> None:
        """
        Cases 6 and 7, 12 and 13: four addresses under a key, and back by the key.
        """
        stub = self.stub()
        self.allocate(stub, self.with_key, 4, f"{self.key}AllocationKey")
        self.end(stub)

        self.release({"resource": f"{self.key}AllocationKey"})

    def test_released_by_key(self: Any) -> None:
        """
        By its key a whole block is free, while its session lasts.
        """
        stub = self.stub()
        self.allocate(stub, self.with_key, 4, "key")
        message = {"id": 2, "type": "delete", "from": f"{P}/registry/allocation", "to": A}

        self.ask(stub, {**message, "body": {"resource": ["key"], "attribute": "stray"}})

        self.assertEqual(0, len(self.net.node.routes))


class HypertyAllocationTests(AllocationCase, Case):
    pass


class ObjectAllocationTests(AllocationCase, Case):
    single = with_key = "connection"
    block = "comm"
    key = f"{P}/object"


class SubscriptionTests(Case):
    """
    Cases 14 to 19: one story.
    """

    def setUp(self) -> None:
        super().setUp()
        # Case 14
        self.reporter = self.stub(f"{P}/Reporter", f"{RUNTIME}/Reporter")
        body = {"scheme": "connection", "value": {"number": 1}}
        message = {"id": 1, "type": "create", "from": f"{P}/registry/allocation", "to": A, "body": body}
        (self.object,) = self.ask(self.reporter, message)["value"]["allocated"]
        self.resources = [f"{self.object}/changes", f"{self.object}/children/name1"]

    def subscriber(self, name: str, source: bool) -> VertxStub:
        url = f"{P}/{name}"
        stub = self.stub(url, f"{RUNTIME}/{name}")
        body = {"resources": self.resources, **({"source": url} if source else {})}
        reply = self.ask(stub, {"id": 1, "type": "subscribe", "from": f"{url}/sm", "to": SM, "body": body})
        self.assertEqual({"code": 200, "via": url}, reply)
        return stub

    def publish(self) -> dict[str, Any]:
        body = {"attribute": "mode", "value": "write"}
        message = {"id": 5, "type": "update", "from": self.object, "to": self.resources[0], "body": body}
        self.reporter.post(message)
        return message

    def test_15_to_17_subscribe_and_publish(self) -> None:
        """
        Who subscribed, with a source that the node does not know or without, gets the update as it was sent.
        """
        for stub in (self.subscriber("Subscriber", True), self.subscriber("Subscriber2", False)):
            seen = len(stub.bus)

            message = self.publish()

            (got,) = stub.bus[seen:]
            self.assertEqual({**message, "body": {**message["body"], "via": stub.stub_url}}, got)

    def test_18_and_19_unsubscribe(self) -> None:
        """
        Who unsubscribed is told so, and gets nothing more.
        """
        for stub in (self.subscriber("Subscriber", True), self.subscriber("Subscriber2", False)):
            message = {"id": 2, "type": "unsubscribe", "from": f"{stub.stub_url}/sm", "to": SM}
            self.ask(stub, {**message, "body": {"resources": self.resources}})
            seen = len(stub.bus)

            self.publish()
            self.net.advance(1.5)

            self.assertEqual([], stub.bus[seen:])


class StatusTests(Case):
    """
    Cases 28 and 29.
    """

    def test_28_and_29_status(self) -> None:
        """
        A change of status that another runtime announces, which serves the registry, reaches who subscribed
        to it.
        """
        self.start(registry={"url": "none"})
        self.use(rule("permit", {"msgTo": {"equals": REGISTRY}}), rule("permit"))
        entity = f"hyperty://{D}/entity"
        watcher = self.stub()
        body = {"resources": [f"{entity}/registration"]}
        message = {"id": 1, "type": "subscribe", "from": f"{RUNTIME}/registry", "to": SM, "body": body}
        self.ask(watcher, message)
        other = self.stub(f"{P}/other", f"{RUNTIME}/other")
        serve = {"id": 1, "type": "subscribe", "from": f"{RUNTIME}/other/sm", "to": SM}
        self.ask(other, {**serve, "body": {"resources": [REGISTRY]}})

        body = {"value": "disconnected", "attribute": "status"}
        to = f"{entity}/registration"
        other.post({"id": 2, "type": "update", "from": REGISTRY, "to": to, "body": body})

        got = watcher.bus[-1]
        self.assertEqual(("update", to, "disconnected"), (got["type"], got["to"], got["body"]["value"]))

    def test_same_name_twice(self) -> None:
        """
        Two stubs of one name and one runtimeURL, as these cases have them, are both live and both answered.
        """
        first, second = self.stub(), self.stub()
        message = {"id": 4, "type": "subscribe", "from": f"{RUNTIME}/registry", "to": SM}

        for stub in (first, second):
            self.ask(stub, {**message, "body": {"resources": ["x://y/registration"]}})
        self.end(first)

        self.ask(second, {**message, "body": {"resources": ["x://y/registration"]}})
        self.assertEqual("live", second.statuses[-1])


class RegistrationTests(Case):
    """
    Cases 20 to 30: allocation and registration, searches, status.
    """

    def setUp(self) -> None:
        self.start_with_registry()
        stub = self.stub()
        value = {"number": 1}
        allocation = {"id": 1, "type": "create", "from": f"{P}/registry/allocation", "to": A}
        allocated = self.ask(stub, {**allocation, "body": {"scheme": "hyperty", "value": value}})
        (self.address,) = allocated["value"]["allocated"]
        hyperty = {
            "url": self.address,
            "descriptor": f"hyperty-catalogue://catalogue.{D}/.well-known/hyperty/x",
            "user": USER,
            "expires": 1200,
            "status": "live",
            "dataSchemes": ["comm"],
            "resources": ["chat"],
            "runtime": RUNTIME,
        }
        self.registry(stub, "create", {"value": hyperty, "policyURL": ""})
        self.end(stub)

    def registry(self, stub: VertxStub, type: str, body: dict[str, Any]) -> dict[str, Any]:
        """
        Ask the registry; its answer, with code 200.
        """
        message = {"id": 2, "type": type, "from": f"{RUNTIME}/registry", "to": REGISTRY, "body": body}
        return self.ask(stub, message)

    def test_20_to_24_search(self) -> None:
        """
        A registered hyperty is found by its user, with data schemes, with resources and with both.
        """
        stub = self.stub()
        for criteria in (
            {},
            {"dataSchemes": ["comm"]},
            {"resources": ["chat"]},
            {"resources": ["chat"], "dataSchemes": ["comm"]},
        ):
            found = self.registry(stub, "read", {"resource": USER, "criteria": criteria})

            self.assertEqual([self.address], list(found["value"]))

    def test_25_address(self) -> None:
        """
        And by its address.
        """
        found = self.registry(self.stub(), "read", {"resource": self.address})

        self.assertEqual(self.address, found["value"]["hypertyID"])

    def test_26_unknown(self) -> None:
        """
        What was never registered is 404.
        """
        stub = self.stub()
        body = {"resource": f"schema://{D}/non-existing-object"}

        stub.post({"id": 2, "type": "read", "from": f"{RUNTIME}/registry", "to": REGISTRY, "body": body})

        self.assertEqual(404, stub.bus[-1]["body"]["code"])

    def test_27_keep_alive(self) -> None:
        """
        A registration is kept alive.
        """
        self.registry(self.stub(), "update", {"resource": self.address})

    def test_28_to_30_status(self) -> None:
        """
        Who subscribed its registration is told when it is taken back.
        """
        watcher = self.stub(runtime=f"runtime://{D}/2")
        body = {"resources": [f"{self.address}/registration"]}
        self.ask(
            watcher, {"id": 3, "type": "subscribe", "from": f"{RUNTIME}/registry", "to": SM, "body": body}
        )
        seen = len(watcher.bus)

        left = {"resource": self.address, "value": "disconnected", "attribute": "status"}
        self.registry(self.stub(), "update", left)

        (told,) = watcher.bus[seen:]
        self.assertEqual(P, told["body"].pop("via"))  # the stub's own mark
        self.assertEqual(
            (
                "update",
                REGISTRY,
                f"{self.address}/registration",
                {"value": "disconnected", "attribute": "status"},
            ),
            (told["type"], told["from"], told["to"], told["body"]),
        )
