"""
Two domains, one runtime each, unmodified: all that runtimes do with each other, in both directions.
"""

import pytest

from msgnode.protocol.message import Message
from tests.support.links_exchange import MemoryNetwork

A, B = "a.example", "b.example"


class Directory:
    """
    A registry that knows one user.
    """

    def __init__(self, domain: str) -> None:
        self.addresses = [f"domain://registry.{domain}", f"domain://registry.{domain}/"]

    def respond(self, message: Message, session: object) -> Message:
        return message.reply({"code": 200, "value": {"user": "bob"}})


@pytest.mark.parametrize(("here", "there"), [(A, B), (B, A)])
def test_everything(here, there):
    """
    Request, three responses, publication to three observers, child, unsubscribe, delete, registry look-up.
    """
    network = MemoryNetwork(A, B)
    reporter = network[there].client("reporter")
    observers = [network[here].client(name) for name in ("one", "two", "three")]
    network[there].node.offer("registry", Directory(there))
    room = f"comm://{there}/room"

    # -- a request, and three responses
    one = observers[0]
    one.request(reporter.hyperty, body={"value": "invite"})
    network.flow()
    [request] = reporter.take()
    for code in (100, 180, 200):
        reporter.tell(
            {
                "id": request["id"],
                "type": "response",
                "from": reporter.hyperty,
                "to": request["from"],
                "body": {"code": code},
            }
        )
    network.flow()
    assert [each["body"]["code"] for each in one.take()] == [100, 180, 200]

    # -- publication to three observers, as runtimes subscribe
    network[there].subscribe(reporter, f"{room}/children/messages", f"{room}/subscription")
    for observer in observers:
        observer.tell(
            {
                "id": 5,
                "type": "subscribe",
                "from": f"{observer.runtime}/sm",
                "to": f"domain://msg-node.{here}/sm",
                "body": {"resource": room, "childrenResources": ["messages"]},
            }
        )
    network.flow()
    reporter.take()
    assert [[each["body"]["code"] for each in observer.take()] for observer in observers] == [[200]] * 3
    reporter.tell({"id": 6, "type": "update", "from": room, "to": f"{room}/changes", "body": {"value": 1}})
    network.flow()
    assert [[each["type"] for each in observer.take()] for observer in observers] == [["update"]] * 3

    # -- a child that an observer creates, and that of the reporter
    one.request(f"{room}/children/messages", body={"value": "hello", "via": "stub"})
    network.flow()
    reporter.request(f"{room}/children/messages", body={"value": "welcome", "via": "stub"})
    network.flow()
    assert [each["body"]["value"] for each in reporter.take()] == ["hello"]
    assert [[each["body"]["value"] for each in observer.take()] for observer in observers] == [
        ["welcome"],
        ["hello", "welcome"],
        ["hello", "welcome"],
    ]

    # -- unsubscribe, delete
    network[here].subscribe(one, room, type="unsubscribe", body={"resource": room})
    network.flow()
    assert [each["body"]["code"] for each in one.take()] == [200]
    reporter.tell({"id": 6, "type": "delete", "from": room, "to": f"{room}/changes"})
    network.flow()
    assert [[each["type"] for each in observer.take()] for observer in observers] == [
        [],
        ["delete"],
        ["delete"],
    ]

    # -- a look-up in the other domain's registry
    one.request(f"domain://registry.{there}/hyperty/user/bob", "read")
    network.flow()
    [answer] = one.take()
    assert (answer["id"], answer["body"]["value"]) == (7, {"user": "bob"})
