"""
A whole conversation as two deployed runtimes have it, between every two connectors.

Left out until the node answers for a registry: steps 3 and 4 register at
`domain://registry.<d>`, which is answered 501 where there is no registry.
"""

from itertools import product
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.network import Network
from tests.support.poll_runtime import PollRuntime
from tests.support.runtimes import (
    CRLFRuntime,
    M1Runtime,
    M2Runtime,
    PlainRuntime,
    Runtime,
    TCPRuntime,
    TLSRuntime,
    WebSocketRuntime,
)

D = "example.org"
SM = f"domain://msg-node.{D}/sm"
REGISTRY = f"domain://registry.{D}"
R1, R2, R3 = (f"runtime://{D}/r{n}" for n in (1, 2, 3))
H1, H2 = f"hyperty://{D}/h1", f"hyperty://{D}/h2"
OBJECT = f"comm://{D}/o1"
IDENTITY = {"userProfile": {"userURL": f"user://{D}/ann"}}


class Conversation:
    """
    R1 with the reporter H1, R2 with the observer H2; each step checks who gets what, and nobody else.
    """

    registry = 501  # what the node answers there

    def __init__(self, test: "ScenarioTests", first: type[Runtime], second: type[Runtime]) -> None:
        self.test = test
        self.net = Network()
        self.r1, self.r2 = first(self.net, R1), second(self.net, R2)
        self.pair = f"{first.__name__} and {second.__name__}"
        self.id = 0

    def message(self, type: str, from_: str, to: str, body: Any = None) -> dict[str, Any]:
        self.id += 1
        message = {"id": self.id, "type": type, "from": from_, "to": to}
        return message if body is None else {**message, "body": body}

    def asks(self, runtime: Runtime, code: int, *fields: Any) -> None:
        """
        A request to the node, and its answer.
        """
        message = self.message(*fields)
        runtime.send(message)

        (reply,) = runtime.take()
        header = {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"]}
        self.test.assertEqual(header, {name: reply[name] for name in header}, self.pair)
        self.test.assertEqual(code, reply["body"]["code"], self.pair)
        if code == 200:
            self.test.assertEqual({"code": 200}, reply["body"], self.pair)
        self.nobody()

    def sends(self, sender: Runtime, receivers: list[Runtime], *fields: Any) -> int:
        """
        A message from runtime to runtime, unchanged, to just these; its id.
        """
        message = self.message(*fields)
        sender.send(message)

        for receiver in receivers:
            self.test.assertEqual([message], receiver.take(), self.pair)
        self.nobody()
        return message["id"]

    def answers(self, sender: Runtime, receiver: Runtime, id: int, from_: str, to: str, body: Any) -> None:
        response = {"id": id, "type": "response", "from": from_, "to": to, "body": body}
        sender.send(response)

        self.test.assertEqual([response], receiver.take(), self.pair)
        self.nobody()

    def nobody(self) -> None:
        for runtime in self.net.runtimes:
            self.test.assertEqual([], runtime.take(), self.pair)

    # -- the steps -------------------------------------------------------------

    def open(self) -> None:
        """
        Steps 1 and 2: sessions, and the hyperties' addresses.
        """
        self.r1.open()
        self.r2.open()
        for runtime, url, hyperty in ((self.r1, R1, H1), (self.r2, R2, H2)):
            body = {"resources": [hyperty], "source": f"{url}/address-allocation"}
            self.asks(runtime, 200, "subscribe", f"{url}/subscriptions", SM, body)

    def create(self) -> None:
        """
        Steps 3 and 4: registration, where it is offered, and the object's addresses.
        """
        known = {"resources": [], "dataSchemes": [], "expires": 3600, "runtime": R1, "status": "live"}
        hyperty = {**known, "url": H1, "user": "ann@example.org", "descriptor": "hyperty-catalogue://x/y"}
        thing = {**known, "url": OBJECT, "name": "chat", "schema": "hyperty-catalogue://x/z", "reporter": H1}
        for value in (hyperty, thing):
            self.asks(self.r1, self.registry, "create", f"{R1}/registry/", REGISTRY, {"value": value})
        body = {"resources": [OBJECT, f"{OBJECT}/subscription"], "source": H1}
        self.asks(self.r1, 200, "subscribe", f"{R1}/sm", SM, body)
        body = {"resources": [f"{OBJECT}/children/"], "source": H1}
        self.asks(self.r1, 200, "subscribe", f"{R1}/sm", SM, body)

    def invite(self) -> None:
        """
        Step 5.
        """
        body = {"p2p": False, "identity": IDENTITY, "source": H1, "value": {"name": "o1"}, "schema": "x"}
        id = self.sends(self.r1, [self.r2], "create", f"{OBJECT}/subscription", H2, body)
        self.answers(self.r2, self.r1, id, H2, f"{OBJECT}/subscription", {"code": 200})

    def observe(self, observer: Runtime, url: str, hyperty: str) -> None:
        """
        Step 6.
        """
        resources = [f"{OBJECT}/changes", f"{OBJECT}/children/"]
        body = {"identity": IDENTITY, "resources": resources, "source": hyperty}
        self.asks(observer, 200, "subscribe", f"{url}/sm", SM, body)
        body = {"identity": IDENTITY, "subscriber": hyperty}
        id = self.sends(observer, [self.r1], "subscribe", f"{url}/sm", f"{OBJECT}/subscription", body)
        body = {"code": 200, "schema": "x", "value": {"data": {"a": 1}}, "owner": H1}
        self.answers(self.r1, observer, id, f"{OBJECT}/subscription", f"{url}/sm", body)

    def update(self, *observers: Runtime) -> None:
        """
        Step 7.
        """
        body = {"version": self.id, "source": H1, "attribute": "data.a", "value": 2}
        self.sends(self.r1, list(observers), "update", OBJECT, f"{OBJECT}/changes", body)

    def child(self, via: str = "") -> None:
        """
        Step 8.  A stub that writes `via` gets no echo.
        """
        body = {"resource": "chat", "value": {"text": "hello"}, "identity": IDENTITY, "mutual": True}
        receivers = [self.r1] if via else [self.r1, self.r2]
        body = {**body, "via": via} if via else body
        id = self.sends(self.r2, receivers, "create", H2, f"{OBJECT}/children/", body)
        self.answers(self.r1, self.r2, id, f"{OBJECT}/children/", H2, {"code": 100})

    def leave(self) -> None:
        """
        Step 9.
        """
        body = {"source": H2, "identity": IDENTITY}
        self.sends(self.r2, [self.r1], "unsubscribe", f"{R2}/sm", f"{OBJECT}/subscription", body)
        body = {"resource": OBJECT, "resources": [f"{OBJECT}/children/"]}
        self.asks(self.r2, 200, "unsubscribe", f"{R2}/sm", SM, body)

    def delete(self, *observers: Runtime) -> None:
        """
        Step 10.
        """
        body = {"via": f"runtime://{D}/protostub/1"}
        self.sends(self.r1, list(observers), "delete", f"{OBJECT}/subscription", f"{OBJECT}/changes", body)
        body = {"resource": OBJECT, "childrenResources": ["chatmessages"]}
        to = f"domain://msg-node.{D}/object-address-allocation"
        self.asks(self.r1, 200, "delete", f"{R1}/sm", to, body)
        body = {"resources": [OBJECT], "source": H1}
        self.asks(self.r1, 200, "unsubscribe", f"{R1}/sm", SM, body)

    def reload(self, runtime: Runtime) -> None:
        """
        A page reload: the connection goes, and a new stub says `open` with the same runtimeURL.
        """
        runtime.drop()
        runtime.token = ""
        runtime.connect()
        runtime.open()
        self.nobody()


class ScenarioTests(SynchronousTestCase):
    """
    Between every two connectors; their variants talk among themselves.
    """

    CONNECTORS = (WebSocketRuntime, M2Runtime, TCPRuntime, PollRuntime)
    VARIANTS = (PlainRuntime, TLSRuntime, M1Runtime, CRLFRuntime)

    def conversations(self) -> list[Conversation]:
        pairs = [*product(self.CONNECTORS, repeat=2), *zip(self.VARIANTS, self.VARIANTS, strict=True)]
        return [Conversation(self, first, second) for first, second in pairs]

    def test_from_open_to_the_deletion_of_the_object_everybody(self) -> None:
        """
        From `open` to the deletion of the object, everybody gets what is meant for it and nothing else.
        """
        for talk in self.conversations():
            talk.open()
            talk.create()
            talk.invite()
            talk.observe(talk.r2, R2, H2)
            talk.update(talk.r2)
            talk.child()
            talk.child(via=f"runtime://{D}/protostub/2")
            talk.leave()
            talk.update()
            talk.observe(talk.r2, R2, H2)
            talk.delete(talk.r2)
            talk.update(talk.r2)

    def test_reloaded_observer_is_updated(self) -> None:
        """
        An observer whose page is loaded anew is updated, without subscribing again.
        """
        for talk in self.conversations():
            talk.open()
            talk.create()
            talk.observe(talk.r2, R2, H2)

            talk.reload(talk.r2)

            talk.update(talk.r2)
            talk.child()

    def test_reloaded_reporter_is_asked_by_new_observers(self) -> None:
        """
        A reporter whose page is loaded anew, and subscribes to less, is still asked by new observers.
        """
        for talk in self.conversations():
            talk.open()
            talk.create()
            talk.observe(talk.r2, R2, H2)

            talk.reload(talk.r1)
            for resources in ([OBJECT], [f"{OBJECT}/children/"]):
                body = {"resources": resources, "source": H1}
                talk.asks(talk.r1, 200, "subscribe", f"{R1}/sm", SM, body)

            third = type(talk.r2)(talk.net, R3).open()
            talk.observe(third, R3, f"hyperty://{D}/h3")
            talk.update(talk.r2, third)

    def test_updates_while_reloading(self) -> None:
        """
        What is published while an observer's page loads reaches it afterwards, in order.
        """
        for talk in self.conversations():
            talk.open()
            talk.create()
            talk.observe(talk.r2, R2, H2)
            messages = [talk.message("update", OBJECT, f"{OBJECT}/changes", {"version": n}) for n in range(3)]

            talk.r2.drop()
            talk.r1.send(*messages)
            talk.r2.token = ""
            talk.r2.connect()
            talk.r2.open()

            self.assertEqual(messages, talk.r2.take(), talk.pair)
            talk.nobody()
