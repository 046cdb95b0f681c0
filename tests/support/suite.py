"""
What every suite of the connectors' behaviour starts from.
"""

from typing import Any

from tests.support.network import Network
from tests.support.runtimes import Runtime

NODE = "domain://msg-node.example.org"
SM = f"{NODE}/sm"
ALLOCATION = f"{NODE}/address-allocation"


class Suite:
    """
    Behaviours that hold for each connector; a subclass says which, with `connect`.
    """

    connect: Any  # the class of the clients, from runtimes.py
    net: Network

    def setUp(self: Any) -> None:
        self.restart()

    def restart(self: Any, **sections: Any) -> None:
        """
        A new node, with these sections of the configuration file.
        """
        self.net = Network(**sections)

    def arrive(self: Any, name: str = "a") -> Runtime:
        """
        A client that is connected and has not said who it is.
        """
        return self.connect(self.net, f"runtime://example.org/{name}")

    def client(self: Any, name: str = "a") -> Runtime:
        """
        A client with a session.
        """
        client = self.arrive(name).open()
        self.assertEqual([], client.take())
        return client

    def subscribe(self: Any, client: Runtime, *addresses: str) -> None:
        reply = client.ask(type="subscribe", to=SM, body={"resources": list(addresses)})
        self.assertEqual({"code": 200}, reply["body"])

    def allocate(self: Any, client: Runtime, number: int = 1, scheme: str = "comm") -> list[str]:
        body = {"scheme": scheme, "value": {"number": number}}
        return client.ask(to=ALLOCATION, body=body)["body"]["value"]["allocated"]

    # -- what must be true ---------------------------------------------------

    def assertClosed(self: Any, client: Runtime, code: int) -> None:
        """
        The node closed this client's connection and said why, in the way of its connector.
        """
        self.assertEqual(client.closings.get(code, code), client.code)
        self.assertFalse(client.is_connected)

    def assertReaches(self: Any, sender: Runtime, receiver: Runtime) -> None:
        """
        A message from one client to the other arrives, and nothing else does.
        """
        message = {"id": 99, "type": "ping", "from": f"{sender.url}/x", "to": f"{receiver.url}/x"}
        receiver.take()

        sender.send(message)

        self.assertEqual([message], receiver.take())

    def assertRefused(self: Any, reply: Any, code: int) -> None:
        """
        The reply is an error with that code, in words, and is counted and written down as such.
        """
        body = reply["body"]
        self.assertEqual(code, body["code"], body)
        self.assertEqual({"code": code, "desc": body["desc"], "description": body["desc"]}, body)
        self.assertTrue(body["desc"])

    def logged(self: Any) -> tuple[str, int]:
        """
        Outcome and code in the traffic log's last line about a message.
        """
        line = self.net.traffic_recorder.messages[-1]
        return line["outcome"], line["code"]
