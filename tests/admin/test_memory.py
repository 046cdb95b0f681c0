"""
`GET /api/v1/memory`: who holds the memory of a node.
"""

from typing import Any

from msgnode.transport.sockets import held_bytes
from tests.support.admin_case import A, AdminCase, B
from tests.support.made_policies import rule, use
from tests.support.runtimes import TCPRuntime, dumps


def update(size: int = 1000) -> bytes:
    return dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y", "body": {"value": "x" * size}})


class MemoryTests(AdminCase):
    """
    A node with two clients: B has a queue, then an outbox.
    """

    def owners(self) -> dict[str, int]:
        found: dict[str, int] = self.get("memory")["by_owner"]
        return found

    def test_every_byte_of_the_process_has_one_owner(self) -> None:
        """
        The owners add up to the memory of the process.
        """
        found = self.get("memory")

        self.assertEqual(found["rss"], sum(found["by_owner"].values()))
        self.assertEqual(
            [
                "waiting",
                "unacked",
                "output",
                "connections",
                "sessions",
                "routes",
                "policies",
                "decisions",
                "tokens",
                "other",
            ],
            list(found["by_owner"]),
        )

    def test_messages_that_wait_and_those_that_are_not_acknowledged_are_apart(self) -> None:
        """
        Together they are what the undelivered messages take in memory.
        """
        acknowledging = TCPRuntime(self.net, "runtime://example.org/acks")
        acknowledging.session("open", **{"from": acknowledging.url, "body": {"resume": True}})
        to = f"{acknowledging.url}/x"
        self.device.send(
            {"id": 1, "type": "update", "from": f"{A}/x", "to": to, "body": {"value": "x" * 1000}}
        )
        self.assertEqual(0, self.owners()["waiting"])
        self.assertGreater(self.owners()["unacked"], 1000)

        self.browser.drop()
        self.device.send(*[update()] * 3)

        found, journal = self.owners(), self.get("memory")["journal"]
        self.assertGreater(found["waiting"], 2 * found["unacked"])
        self.assertEqual(journal, found["waiting"] + found["unacked"])

    def test_more_connections_addresses_and_decisions_take_more(self) -> None:
        """
        Each owner grows by what is its own.
        """
        use(self.node, rule("permit"))
        before = self.owners()

        client = TCPRuntime(self.net, "runtime://example.org/more").open()
        client.ask(
            type="subscribe",
            to="domain://msg-node.example.org/sm",
            body={"resources": ["comm://example.org/chat/changes"]},
        )

        after = self.owners()
        for owner in ("connections", "sessions", "routes", "decisions"):
            with self.subTest(owner=owner):
                self.assertGreater(after[owner], before[owner])
        self.assertGreater(after["policies"], 0)

    def test_a_transport_holds_what_the_kernel_does_not_take(self) -> None:
        """
        Also below TLS; a transport without a buffer holds nothing.
        """

        class Transport:
            dataBuffer, offset, _tempDataLen = b"12345", 2, 10

        class Wrapped:
            transport = Transport()

        for transport, held in ((Transport(), 13), (Wrapped(), 13), (object(), 0)):
            connection: Any = type("Connection", (), {"transport": transport})()
            self.assertEqual(held, held_bytes(connection))
