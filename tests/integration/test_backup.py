"""
Backups of real nodes: taken under load, restored after kill -9, and used by the clients and the peers of
before.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import TestCase

from .federated import Domain, Domains
from .process import NodeProcess
from .resuming import ResumingClient

SECONDS = 60  # for a command


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """
    Run `msgnode` with these arguments.
    """
    program = Path(sys.executable).with_name("msgnode")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MSGNODE_")}
    run = [str(program), *map(str, arguments)]
    return subprocess.run(run, capture_output=True, text=True, timeout=SECONDS, env=inherited, check=False)


def back_up(admin: int, state: Path) -> dict[str, Any]:
    where = ("--admin", f"http://127.0.0.1:{admin}", "--state", state)
    done = command("admin", "backup", *where, "--reason", "nightly", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def subscribed(name: str, address: str, port: int, domain: str = "localhost") -> ResumingClient:
    client = ResumingClient(f"runtime://{domain}/{name}")
    client.connect(port)
    sm = f"domain://msg-node.{domain}/sm"
    answer = client.ask(id=2, type="subscribe", to=sm, body={"resources": [address]})
    assert answer["body"]["code"] == 200, answer
    return client


class Publisher(threading.Thread):
    """
    A client that publishes numbered messages as fast as the node acknowledges them, until `enough`.
    """

    def __init__(self, port: int, address: str) -> None:
        super().__init__(daemon=True)
        self.client = ResumingClient("runtime://localhost/publisher")
        self.client.connect(port)
        self.enough = threading.Event()
        self._address = address

    def run(self) -> None:
        while not self.enough.is_set() and self.client.socket is not None:
            for _ in range(20):
                self.client.send(id=1, type="update", to=self._address, body={"n": self.client.sent + 1})
            self.client.read_until(lambda: len(self.client.kept) < 100 or self.client.socket is None)

    @property
    def acknowledged(self) -> int:
        return self.client.sent - len(self.client.kept)

    def stop(self) -> None:
        self.enough.set()
        self.join(SECONDS)


class BackupTests(TestCase):
    """
    A node that carries messages while it is backed up.
    """

    address = "comm://localhost/chat/changes"

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.place = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="backup-")))

    def start(self, *options: str, state: Path | None = None) -> NodeProcess:
        node = NodeProcess(*options, state=None if state is None else str(state))
        self.stack.callback(node.stop)
        return node

    def test_clients_resume_at_a_node_restored_from_a_backup_of_a_node_under_load(self) -> None:
        """
        The backup has a prefix of what was published, without a gap: all that was acknowledged before it
        began. After kill -9 and a restore elsewhere every client comes back with its token, is told that
        messages may be missing, and messages flow again.
        """
        node = self.start()
        there = subscribed("there", self.address, node.ports["line"])
        away = subscribed("away", self.address, node.ports["line"])
        away.drop()
        publisher = Publisher(node.ports["line"], self.address)
        publisher.start()
        there.read_until(lambda: len(there.got) > 200)

        before = publisher.acknowledged
        made = back_up(node.ports["admin"], node.state)
        after = publisher.client.sent
        there.read_until(lambda: publisher.acknowledged > after)
        publisher.stop()
        node.stop(signal.SIGKILL)

        restored = self.place / "restored"
        done = command("state", "restore", made["path"], restored)
        self.assertEqual(0, done.returncode, done.stderr)
        node = self.start(state=restored)
        node.read_until("records are missing; every session is notified")
        for client in (there, away, publisher.client):
            client.connect(node.ports["line"])
            self.assertEqual((None, False), (client.told.get("missed", 0), client.told.get("recovered")))
            self.assertEqual("", client.closed)
        away.read_until(lambda: len(away.numbers()) >= min(before, 1000) - 20)
        away.read(0.3)
        numbers = away.numbers()
        first = numbers[0]
        waited = [n for n in numbers if n <= after]
        self.assertEqual(list(range(first, first + len(waited))), waited)
        self.assertGreaterEqual(waited[-1], before)

        publisher.client.send(id=1, type="update", to=self.address, body={"n": -1})
        for client in (there, away):
            client.read_until(lambda client=client: -1 in client.numbers())

    def test_backups_go_where_the_configuration_says_and_the_oldest_are_deleted(self) -> None:
        """
        `admin.backup_dir` and `admin.keep_backups`; `--list` shows those that are kept.
        """
        config = self.place / "node.toml"
        anywhere = '"tcp:0:interface=127.0.0.1"'
        config.write_text(
            f"web = [{anywhere}]\nlines = [{anywhere}]\n[admin]\nlisten = {anywhere}\n"
            f'backup_dir = "{self.place}/copies"\nkeep_backups = 2\n'
        )
        node = self.start("--config", str(config))

        made = [back_up(node.ports["admin"], node.state)["path"] for _ in range(3)]

        where = ("--admin", f"http://127.0.0.1:{node.ports['admin']}", "--state", node.state)
        listed = json.loads(command("admin", "backup", "--list", "--json", *where).stdout)
        self.assertEqual(made[1:], [each["path"] for each in listed["backups"]])
        self.assertEqual(2, len(list((self.place / "copies").iterdir())))
        self.assertEqual(0, command("state", "restore", "--check", made[-1]).returncode)


class LinkedBackupTests(TestCase):
    """
    A node that is linked to another domain, which remembers more than the backup does.
    """

    def test_messages_flow_to_and_from_a_peer_after_an_old_backup_was_restored(self) -> None:
        """
        The restored node begins new streams, so nothing new is taken for what the peer has got before.
        """
        domains = Domains(2)
        self.addCleanup(domains.stop)
        domains.chain()
        domains.start()
        a, b = domains.all
        ann = self.subscriber(a, "ann")
        bob = self.subscriber(b, "bob")
        self.exchange_until_linked(ann, bob, 1)
        assert a.process is not None
        made = back_up(a.admin, a.process.state)
        for number in range(2, 30):
            self.exchange(ann, bob, number)

        a.kill()
        done = command("state", "restore", "--replace", made["path"], a.process.state)
        self.assertEqual(0, done.returncode, done.stderr)
        a.start()
        ann.connect(a.lines)

        self.assertEqual(None, ann.told.get("missed", 0))
        self.exchange_until_linked(ann, bob, 100)
        for number in range(101, 110):
            self.exchange(ann, bob, number)

    def subscriber(self, domain: Domain, name: str) -> ResumingClient:
        address = f"comm://{domain.name}/{name}/changes"
        return subscribed(name, address, domain.lines, domain.name)

    def exchange_until_linked(self, ann: ResumingClient, bob: ResumingClient, number: int) -> None:
        """
        Repeat it until both got it: routes take a few seconds after the links are up.
        """
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not (number in ann.numbers() and number in bob.numbers()):
            self.send(ann, bob, number)
            for client in (ann, bob):
                client.read(0.3)
        self.exchange(ann, bob, number)

    def exchange(self, ann: ResumingClient, bob: ResumingClient, number: int) -> None:
        """
        Each sends the other one message, and gets it.
        """
        self.send(ann, bob, number)
        for client in (ann, bob):
            client.read_until(lambda client=client: number in client.numbers())

    def send(self, ann: ResumingClient, bob: ResumingClient, number: int) -> None:
        for sender, receiver in ((ann, bob), (bob, ann)):
            sender.send(id=1, type="update", to=receiver.runtime, body={"n": number})
