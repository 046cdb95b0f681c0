"""
TURN servers and credentials from a QoS broker, by messages.
"""

from typing import Any

from twisted.internet.error import ConnectionRefusedError
from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import Client, MemoryNode
from tests.support.world import World

QOS = "domain://qos-broker.example.org"
OPTIONS = {
    "url": "https://qos.example.org:8181",
    "csp": "example",
    "connectivity": "http://lhcb.example.org:8080",
}


class QoSCase(SynchronousTestCase):
    """
    A node, its broker, and a client.
    """

    options: dict[str, Any] = OPTIONS

    def setUp(self) -> None:
        self.node = MemoryNode(world=World, qos=self.options)
        self.broker = self.node.world.broker
        self.client = self.node.client("runtime://example.org/ann")

    def ask(self, type: str, body: Any, to: str = QOS, client: Client | None = None) -> dict[str, Any]:
        """
        The body of the answer.
        """
        client = client or self.client
        client.tell({"id": 7, "type": type, "from": f"{client.runtime}/qos", "to": to, "body": body})
        self.node.world.pump()
        reply = client.take()[-1]
        self.assertEqual((7, "response", to), (reply["id"], reply["type"], reply["from"]))
        return reply["body"]

    def turn(self, client: Client | None = None, **value: Any) -> dict[str, Any]:
        return self.ask("create", {"resource": "/turn", "value": value}, client=client)


class TurnTests(QoSCase):
    """
    What a browser's RTCPeerConnection is given.
    """

    def test_turn_server_and_credentials_in_browser_shape(self) -> None:
        """
        A TURN server and credentials for it come in the shape that browsers take, at each of the addresses.
        """
        for to in (QOS, f"{QOS}/", "domain://msg-node.example.org/qos-broker"):
            self.broker.asked.clear()
            body = self.ask("create", {"resource": "/turn", "value": {"clientName": "ann"}}, to)
            client = f"{self.broker.issued:032x}"
            server = {"urls": ["turn:203.0.113.7:3478"], "username": client, "credential": "pw2"}
            expected = {"iceServers": [server], "iceTransportPolicy": "relay", "clientId": client}
            self.assertEqual({"code": 200, "value": expected}, body)
            asked = [
                ("/getAppropriateTurn", {"cspId": "example", "clientName": "ann"}),
                ("/getCredentials", {"clientId": client}),
            ]
            self.assertEqual(asked, self.broker.asked)

    def test_turn_server_by_execute(self) -> None:
        """
        The same by `execute`; without a name the client is called by its runtimeURL.
        """
        body = self.ask("EXECUTE", {"method": "getTurn"})

        self.assertEqual("relay", body["value"]["iceTransportPolicy"])
        self.assertEqual("runtime://example.org/ann", self.broker.asked[0][1]["clientName"])

    def test_in_two_steps(self) -> None:
        """
        A server first, then credentials, for the client that was named then.
        """
        found = self.ask("execute", {"method": "getAppropriateTurn", "params": {"clientName": "a"}})["value"]
        self.assertEqual({"turn": "203.0.113.7:3478", "clientId": f"{1:032x}"}, found)

        body = self.ask("execute", {"method": "getCredentials", "params": {"clientId": found["clientId"]}})
        self.assertEqual({"clientId": found["clientId"], "password": "pw2"}, body["value"])

    def test_credentials_of_others(self) -> None:
        """
        Nobody gets, or voids, the credentials of another session's client.
        """
        client = self.turn()["value"]["clientId"]
        bob = self.node.client("runtime://example.org/bob")
        self.broker.asked.clear()

        for asked in (client, "made up", "", None, 5):
            params = {"clientId": asked}
            body = self.ask("execute", {"method": "getCredentials", "params": params}, client=bob)
            self.assertEqual(403 if asked in (client, "made up") else 400, body["code"])
        self.assertEqual([], self.broker.asked)

    def test_account(self) -> None:
        """
        The account is the domain's own, whatever a client says.
        """
        self.assertEqual(200, self.turn(cspId="example")["code"])
        self.assertEqual(403, self.turn(cspId="other")["code"])

    def test_names_are_quoted(self) -> None:
        """
        A name cannot add to what the broker is asked.
        """
        self.turn(clientName="a&cspId=other#é /?")

        self.assertEqual({"cspId": "example", "clientName": "a&cspId=other#é /?"}, self.broker.asked[0][1])

    def test_what_the_broker_means_by_its_404s_becomes_a_code(self) -> None:
        """
        What the broker means by its 404s becomes a code of its own.
        """
        self.broker.exceeded = True
        body = self.turn()
        self.assertEqual(
            (429, "Unable to get a turn server : data consumption exceeded"), (body["code"], body["desc"])
        )
        self.broker.exceeded, self.broker.turn = False, None
        self.assertEqual((503, "No turn found"), (self.turn()["code"], self.turn()["description"]))
        self.broker.accounts.clear()
        self.assertEqual(404, self.turn()["code"])

    def test_broker_that_says_nothing_is_504_after_four_seconds(self) -> None:
        """
        A broker that says nothing is 504 after four seconds, and is asked once.
        """
        self.broker.hang = True
        self.client.tell(
            {
                "id": 7,
                "type": "create",
                "from": "runtime://example.org/ann",
                "to": QOS,
                "body": {"resource": "/turn"},
            }
        )
        self.node.world.pump()
        self.node.clock.advance(3.9)
        self.assertEqual([], self.client.take())
        self.node.clock.advance(0.2)

        self.assertEqual([504], [message["body"]["code"] for message in self.client.take()])
        self.assertEqual(1, len(self.broker.asked))

    def test_broker_that_is_not_there_is_504(self) -> None:
        """
        A broker that is not there is 504.
        """
        self.node.world.broker_wires.refuse = ConnectionRefusedError()

        self.assertEqual(
            (504, "Error contacting the QoS broker."), (self.turn()["code"], self.turn()["desc"])
        )

    def test_what_makes_no_sense_is_502_and_goes_no_further(self) -> None:
        """
        What makes no sense is 502, and goes no further.
        """
        for raw in (
            b"",
            b"<html>secret</html>",
            b"null",
            b"[]",
            b'["203.0.113.7:3478"]',
            b'["secret", "client"]',
            b'["a:1?transport=tcp", "c"]',
            b'["a:1", ""]',
            b'["a:1", 5]',
            b'{"turn": "a:1"}',
        ):
            self.broker.raw = raw
            body = self.turn()
            self.assertEqual(
                (502, "Invalid response from the QoS broker."), (body["code"], body["desc"]), raw
            )


class OtherTests(QoSCase):
    """
    Quotas, connectivity, and what is not offered.
    """

    def test_quota_and_consumption_are_numbers(self) -> None:
        """
        The domain's own quota and consumption, as numbers.
        """
        expected = {
            "quota": {"audio": 1000, "video": 2000, "data": 3000},
            "consumption": {"audio": 7, "video": 100, "data": 0},
        }

        self.assertEqual({"code": 200, "value": expected}, self.ask("read", {"resource": "/quota"}))

    def test_no_account(self) -> None:
        """
        An account that the broker does not know is 404.
        """
        self.broker.accounts.clear()

        self.assertEqual(404, self.ask("read", {"resource": "/quota"})["code"])

    def test_connectivity(self) -> None:
        """
        What is known of a client's last hop.
        """
        body = self.ask("read", {"resource": "/connectivity/ann's phone"})

        self.assertEqual({"Network Bearer": "LTE", "IP Addresses": ["203.0.113.9"]}, body["value"])
        self.assertEqual({"type": "read", "client": "ann's phone"}, self.broker.asked[0][1])

    def test_everything_else_is_refused_in_words_and_the_broker(self) -> None:
        """
        Everything else is refused in words, and the broker is never asked to change an account.
        """
        for code, type, body in (
            (501, "execute", {"method": "changeQuotas", "params": {"cspKey": "prov:example"}}),
            (501, "execute", {"method": "deleteCSP"}),
            (501, "execute", {}),
            (400, "delete", {"resource": "/turn"}),
            (400, "create", {"resource": "/csp"}),
            (400, "read", {}),
            (400, "read", {"resource": "/connectivity/"}),
            (400, "read", {"resource": "/connectivity/" + "x" * 300}),
            (400, "create", {"resource": "/turn", "value": "x"}),
            (400, "create", {"resource": "/turn", "value": {"clientName": 5}}),
        ):
            self.assertEqual(code, self.ask(type, body)["code"], body)
        self.assertEqual([], self.broker.asked)

    def test_client_cannot_send_as_the_qos_broker(self) -> None:
        """
        A client cannot send as the broker.
        """
        self.client.post("runtime://example.org/ann", "x", **{"from": QOS})

        self.assertEqual(403, self.client.take()[-1]["body"]["code"])


class NoneTests(QoSCase):
    """
    Without a broker, and without a service for the last hop.
    """

    options: dict[str, Any] = {}

    def test_nothing_is_offered(self) -> None:
        """
        Nothing is offered.
        """
        self.assertEqual(501, self.turn()["code"])

    def test_no_connectivity(self) -> None:
        """
        A broker alone knows nothing of the last hop.
        """
        self.node = MemoryNode(world=World, qos={**OPTIONS, "connectivity": ""})
        self.client = self.node.client("runtime://example.org/ann")

        self.assertEqual(501, self.ask("read", {"resource": "/connectivity/x"})["code"])
