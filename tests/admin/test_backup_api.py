"""
`/api/v1/backup` and `msgnode admin backup`, with a node in memory whose state is on disk.
"""

import json
from typing import Any

from click.testing import CliRunner, Result
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.admin.backup_api import Backups
from msgnode.cli.main import main
from msgnode.protocol.errors import Rejected
from msgnode.storage.audit_log import read_entries
from tests.support.admin_http import MemoryAdminHTTP
from tests.support.durable import DurableNode
from tests.support.fakes import MemoryNode, directory
from tests.support.network import Network


class BackupCommandTests(SynchronousTestCase):
    """
    An operator backs a node up.
    """

    def setUp(self) -> None:
        self.state = directory(self) / "state"
        self.node = DurableNode(self.state, state=str(self.state))
        self.addCleanup(self.node.store.shut)
        self.addCleanup(self.node.spool.close)
        self.net = Network(self.node)
        self.net.tokens.startService()
        self.http = MemoryAdminHTTP(self.net)

    def run_(self, *options: str) -> Result:
        line = ["admin", "backup", "--state", str(self.state), *options]
        if "--list" not in options:
            line += ["--reason", "before the upgrade"]
        return CliRunner().invoke(main, line, obj=self.http)

    def audit(self) -> list[dict[str, Any]]:
        """
        The lines about backups in the audit log.
        """
        entries = [entry for _, _, entry in read_entries(self.state / "audit")]
        return [entry for entry in entries if entry is not None and entry["action"] == "backup"]

    def test_makes_a_backup_and_lists_it(self) -> None:
        """
        The path is printed, and the backup is complete then.
        """
        tried = self.run_("--dry-run")
        self.assertEqual((0, False), (tried.exit_code, (self.state / "backups").exists()), tried.output)
        self.assertIn(str(self.state / "backups"), tried.output)

        done = self.run_()

        listed = json.loads(self.run_("--list", "--json").output)["backups"]
        self.assertEqual(0, done.exit_code, done.output)
        self.assertEqual([done.output.split()[0]], [each["path"] for each in listed])
        self.assertEqual(["done"], [each["state"] for each in listed])
        result = self.audit()[-1]
        self.assertEqual(("result", True), (result["phase"], result["ok"]))
        self.assertIn(listed[0]["path"], result["result"])

    def test_a_backup_that_fails_is_reported(self) -> None:
        """
        For instance because its directory cannot be made; exit code 1, and the reason.
        """
        (self.state / "backups").write_text("a file in the way")

        done = self.run_()

        self.assertEqual(1, done.exit_code)
        self.assertIn("cannot be written: File exists", done.output)
        intent, result = self.audit()
        self.assertEqual(("intent", "result", False), (intent["phase"], result["phase"], result["ok"]))
        self.assertIn("the backup failed: ", result["result"])

    def test_only_the_role_admin_makes_backups(self) -> None:
        """
        A backup takes disk space and has the messages of everybody.
        """
        (self.state / "admin-token").write_text("mna_x viewer operator\n")

        for words in ((), ("--list",)):
            done = self.run_("--json", *words)
            self.assertEqual((1, 403), (done.exit_code, json.loads(done.output)["code"]))
        self.assertFalse((self.state / "backups").exists())


class BackupsTests(SynchronousTestCase):
    """
    The maker of backups.
    """

    def setUp(self) -> None:
        self.state = directory(self) / "state"
        self.node = DurableNode(self.state, state=str(self.state))
        self.addCleanup(self.node.store.shut)
        self.addCleanup(self.node.spool.close)
        self.calls: list[tuple[Deferred[Any], Any]] = []
        self.backups = Backups(self.node, self.run_later)

    def run_later(self, function: Any, *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.calls.append((done, lambda: function(*arguments)))
        return done

    def test_one_backup_is_made_at_a_time(self) -> None:
        """
        Another is refused until the first is complete.
        """
        _, ends = self.backups.begin("ops")

        refused = self.assertRaises(Rejected, self.backups.begin, "ops")
        done, call = self.calls.pop()
        self.assertNoResult(ends)
        done.callback(call())

        self.assertIn(" bytes", self.successResultOf(ends))
        self.assertEqual((409, "done"), (refused.code, self.backups.last and self.backups.last.state))
        self.assertEqual("running", self.backups.begin("ops")[0].state)
        self.calls.pop()[1]()

    def test_a_node_without_a_state_directory_has_nothing_to_back_up(self) -> None:
        """
        It says so.
        """
        backups = Backups(MemoryNode(state="none"))

        refused = self.assertRaises(Rejected, backups.begin, "ops")

        self.assertEqual((409, "conflict"), (refused.code, refused.reason))
        self.assertIn("no state directory", str(refused))
