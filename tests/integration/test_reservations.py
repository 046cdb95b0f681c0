"""
A reservation at a real relay: coturn carries packets of two ends until it is over.
"""

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import TestCase, skipUnless

from aioice import turn

from msgnode.backends.qos.reservations import SWEEP_SECONDS
from tests.integration.process import PATIENCE, Lines, NodeProcess

TURNSERVER = shutil.which("turnserver")
ANN = "runtime://localhost/ann"
QOS = "domain://msg-node.localhost/qos-broker/reservation"
WANTED = {
    "session": "comm://localhost/call",
    "parties": [ANN, "runtime://localhost/bob"],
    "up": 500_000,
    "down": 500_000,
    "seconds": 600,
}
COTURN = """
listening-ip=127.0.0.1
relay-ip=127.0.0.1
listening-port={turn}
min-port=50000
max-port=50400
use-auth-secret
static-auth-secret=s3cret
realm=localhost
cli-ip=127.0.0.1
cli-port={cli}
cli-password=of the test
no-tls
no-dtls
no-tcp
allow-loopback-peers
log-file=stdout
simple-log
pidfile={where}/pid
userdb={where}/db
"""
CONFIG = """
domain = "localhost"
web = []
lines = ["tcp:0:interface=127.0.0.1"]
admin.listen = "tcp:0:interface=127.0.0.1"

[qos]
url = "embedded"
turn_urls = ["turn:127.0.0.1:{turn}"]
turn_secret = "s3cret"
cli = "127.0.0.1:{cli}"
cli_password_file = "{where}/password"
capacity_up = 1_000_000
capacity_down = 1_000_000
overuse_seconds = 2
"""


def free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Received(asyncio.DatagramProtocol):
    """
    The datagrams that came.
    """

    def __init__(self) -> None:
        self.came: list[bytes] = []

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.came.append(data)


class Relayed:
    """
    An end behind the relay, and a plain UDP end that it exchanges packets with.
    """

    def __init__(self, peer: Any, transport: Any, behind: Received, plain: Received) -> None:
        self.peer, self.transport, self.behind, self.plain = peer, transport, behind, plain

    @classmethod
    async def begin(cls, server: dict[str, Any]) -> "Relayed":
        _, host, port = server["urls"][0].split(":")
        behind, plain = Received(), Received()
        transport, _ = await turn.create_turn_endpoint(
            lambda: behind,
            server_addr=(host, int(port)),
            username=server["username"],
            password=server["credential"],
        )
        loop = asyncio.get_running_loop()
        peer, _ = await loop.create_datagram_endpoint(lambda: plain, local_addr=("127.0.0.1", 0))
        return cls(peer, transport, behind, plain)

    async def send(self, bytes_per_second: int, size: int, until: Callable[[], bool]) -> None:
        """
        Send packets of this size to the peer at this rate.
        """
        began, sent = time.monotonic(), 0
        while not until():
            while sent < (time.monotonic() - began) * bytes_per_second:
                self.transport.sendto(b"x" * size, self.peer.get_extra_info("sockname"))
                sent += size
            await asyncio.sleep(0.01)

    async def carries(self, seconds: float = 2.0) -> tuple[bool, bool]:
        """
        Do packets arrive, from behind the relay and to there?
        """
        self.plain.came.clear()
        self.behind.came.clear()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not (self.plain.came and self.behind.came):
            self.transport.sendto(b"to the peer", self.peer.get_extra_info("sockname"))
            self.peer.sendto(b"to behind", self.transport.get_extra_info("sockname"))
            await asyncio.sleep(0.05)
        return bool(self.plain.came), bool(self.behind.came)


@skipUnless(TURNSERVER, "needs coturn")
class RelayTests(TestCase):
    """
    A node and coturn, each in a process of its own.
    """

    def setUp(self) -> None:
        self.where = Path(tempfile.mkdtemp(prefix="msgnode-"))
        self.addCleanup(shutil.rmtree, self.where)
        ports = {"turn": free_port(socket.SOCK_DGRAM), "cli": free_port(socket.SOCK_STREAM)}
        (self.where / "coturn.conf").write_text(COTURN.format(where=self.where, **ports))
        (self.where / "password").write_text("of the test\n")
        (self.where / "node.toml").write_text(CONFIG.format(where=self.where, **ports))
        assert TURNSERVER is not None
        with (self.where / "said").open("w") as said:
            command = [TURNSERVER, "-c", str(self.where / "coturn.conf")]
            coturn = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, cwd=self.where)
        self.addCleanup(coturn.wait, PATIENCE)
        self.addCleanup(coturn.kill)
        self.await_port(ports["cli"])
        self.node = NodeProcess("--config", str(self.where / "node.toml"), listeners=2)
        self.addCleanup(self.node.stop)
        self.client = Lines(self.node.ports["line"], ANN)
        self.addCleanup(self.client.close)

    def await_port(self, port: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                self.assertLess(time.monotonic(), deadline, (self.where / "said").read_text())
                time.sleep(0.1)

    def ask(self, type: str, value: dict[str, Any]) -> dict[str, Any]:
        body = self.client.ask({"id": 7, "type": type, "from": ANN, "to": QOS, "body": {"value": value}})[
            "body"
        ]
        self.assertEqual(200, body["code"], body)
        return body["value"]

    def test_packets_flow_until_the_reservation_is_deleted_or_over(self) -> None:
        """
        The relay carries packets both ways, and after an update; none after a delete, or after the time is
        over, also with credentials of before it was made shorter.
        """
        asyncio.run(self.deleted())
        asyncio.run(self.over())

    def test_packets_flow_until_an_operator_takes_the_reservation_back(self) -> None:
        """
        The relay carries none then, also with credentials that would be valid; the session is told.
        """
        asyncio.run(self.taken_back())

    async def taken_back(self) -> None:
        made = self.ask("create", WANTED)
        relayed = await Relayed.begin(made["iceServers"][0])
        self.assertEqual((True, True), await relayed.carries())

        words = ["take-back", made["id"], "--reason", "the call is over", "--state", str(self.node.state)]
        url = f"http://127.0.0.1:{self.node.ports['admin']}"
        program = str(Path(sys.executable).with_name("msgnode"))
        done = subprocess.run(
            [program, "admin", *words, "--admin", url], capture_output=True, text=True, timeout=PATIENCE
        )

        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertNotIn("relay:", done.stdout)
        told = self.client.receive()
        self.assertIsNotNone(told)
        assert told is not None
        resource, value = told["body"]["resource"], told["body"]["value"]
        self.assertEqual(
            (f"/reservation/{made['id']}", "ended", "removed"), (resource, value["status"], value["reason"])
        )
        self.assertEqual((False, False), await relayed.carries(1.0))
        again = await Relayed.begin(made["iceServers"][0])
        await asyncio.sleep(SWEEP_SECONDS + 1)
        self.assertEqual((False, False), await again.carries(1.0))

    async def deleted(self) -> None:
        made = self.ask("create", WANTED)
        relayed = await Relayed.begin(made["iceServers"][0])
        self.assertEqual((True, True), await relayed.carries())
        self.ask("update", {"id": made["id"], "up": 900_000})
        self.assertEqual((True, True), await relayed.carries())

        self.ask("delete", {"id": made["id"]})

        self.assertEqual((False, False), await relayed.carries(1.0))
        self.assertEqual({"up": 1_000_000, "down": 1_000_000}, self.ask("read", {})["left"])

    def test_overuse_is_stopped(self) -> None:
        """
        Of two clients that reserved the same, the one that relays four times as much is warned and stopped;
        the other one goes on.
        """
        asyncio.run(self.overused())

    async def overused(self) -> None:
        half = {**WANTED, "up": 500_000, "down": 500_000}
        fair, greedy = self.ask("create", half), self.ask("create", half)
        one, other = [await Relayed.begin(each["iceServers"][0]) for each in (fair, greedy)]
        self.assertEqual([(True, True)] * 2, [await one.carries(), await other.carries()])
        deadline = time.monotonic() + 2 * PATIENCE
        told: list[dict[str, Any]] = []
        self.client.socket.settimeout(2 * PATIENCE)

        def listen() -> None:
            while len(told) < 2 and (message := self.client.receive()) is not None:
                told.append(message["body"])

        def is_over() -> bool:
            return len(told) == 2 or time.monotonic() > deadline

        listening = asyncio.get_running_loop().run_in_executor(None, listen)
        await asyncio.gather(one.send(55_000, 50, is_over), other.send(250_000, 200, is_over))
        await listening

        self.assertEqual(
            [(f"/reservation/{greedy['id']}", status) for status in ("overuse", "ended")],
            [(each["resource"], each["value"]["status"]) for each in told],
        )
        self.assertGreater(told[0]["value"]["used"]["up"], 1.25 * 500_000)
        self.assertEqual([(True, True), (False, False)], [await one.carries(), await other.carries(1.0)])
        self.assertEqual([fair["id"]], [each["id"] for each in self.ask("read", {})["reservations"]])

    async def over(self) -> None:
        first = self.ask("create", WANTED)
        made = self.ask("update", {"id": first["id"], "seconds": 4})
        relayed = await Relayed.begin(made["iceServers"][0])
        self.assertEqual((True, True), await relayed.carries())
        await asyncio.sleep(max(made["expires"] - time.time(), 0) + 1)

        self.assertEqual((False, False), await relayed.carries(1.0))
        again = await Relayed.begin(first["iceServers"][0])  # valid for ten minutes
        await asyncio.sleep(SWEEP_SECONDS + 1)
        self.assertEqual((False, False), await again.carries(1.0))
