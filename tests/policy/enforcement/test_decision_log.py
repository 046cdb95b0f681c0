"""
The log of decisions, and the configuration that leads to one.
"""

import json
from typing import Any

from click.testing import CliRunner
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cli.main import main
from msgnode.config.loader import check
from msgnode.config.schema import ConfigError
from msgnode.policy.enforcement.decision_log import DecisionLine, DecisionLog
from msgnode.service.options import Options
from msgnode.service.wiring import decision_logs
from msgnode.storage.json_lines import MAX_HELD, MAX_WAITING_LINES
from msgnode.transport.data_plane import DataPlane
from tests.support.fakes import MemoryNode, directory
from tests.support.made_policies import document, rule, use

RUNTIME, OTHER = "runtime://example.org/a", "runtime://example.org/b"


class LogTests(SynchronousTestCase):
    """
    `decisions-<node>-YYYYMMDDTHH.jsonl`.
    """

    def begin(self, **options: Any) -> MemoryNode:
        self.home = directory(self)
        options = {"source": "push", "decision_log": str(self.home), "permit_sample_rate": 0, **options}
        self.node = MemoryNode(policy=options)
        self.logs = decision_logs(self.node, self.node.clock, maybeDeferred)
        for log in self.logs:
            log.startService()
        self.a, self.b = self.node.client(RUNTIME), self.node.client(OTHER)
        use(self.node, rule("deny", {"actionType": {"equals": "create"}}), rule("permit", id="yes"))
        return self.node

    def lines(self) -> list[dict[str, Any]]:
        for log in self.logs:
            self.successResultOf(maybeDeferred(log.stopService))
        (path,) = self.home.iterdir()
        self.assertTrue(path.name.startswith("decisions-test-"))
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_what_is_refused_is_written_with_its_rule(self) -> None:
        """
        What is refused is written with its rule; never a body.
        """
        self.begin()
        self.a.post(OTHER, "create", body={"secret": "mns_"})
        self.a.post(OTHER, "read")

        (line,) = self.lines()

        wanted = {"effect": "deny", "rule": "s/p/r", "code": 403, "point": "in", "version": 1, "id": 9}
        self.assertEqual(wanted, {key: line[key] for key in wanted})
        self.assertEqual((f"{RUNTIME}/x", OTHER, RUNTIME), (line["from"], line["to"], line["session"]))
        self.assertNotIn("secret", json.dumps(line))

    def test_of_what_is_permitted_the_share_that_is_wished(self) -> None:
        """
        Of what is permitted the share that is wished for.
        """
        self.begin(permit_sample_rate=0.25)
        for _ in range(8):
            self.a.post(OTHER, "read")

        self.assertEqual(["permit"] * 2, [line["effect"] for line in self.lines()])

    def test_masked_values_can_only_be_told_apart(self) -> None:
        """
        What is masked can be told apart, and no more.
        """
        self.begin(hash_fields=["from", "session"])
        self.a.post(OTHER, "create")
        self.b.post(OTHER, "create")

        one, other = self.lines()

        self.assertNotEqual(one["from"], other["from"])
        self.assertNotIn(RUNTIME, json.dumps([one, other]))
        self.assertEqual(OTHER, one["to"])

    def test_there_is_none_where_it_is_not_wanted_or_there(self) -> None:
        """
        There is none where it is not wanted, or there are no policies.
        """
        for options in ({"source": ""}, {"decision_log": "none"}):
            self.begin(**options)

            self.assertEqual([], self.logs)

    def test_obliged(self) -> None:
        """
        What a rule wants logged is written, and said in the node's log, but not for each message.
        """
        self.begin()
        use(self.node, rule("permit", id="loud", log="somebody came"))
        for _ in range(3):
            self.a.post(OTHER, "read")

        self.assertEqual([["Log"]] * 3, [line["obligations"] for line in self.lines()])


class HeldLines(DataPlane):
    """
    A data plane that holds the lines of the decision log, as the compiled one does.
    """

    is_native = True

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[bytes] = []

    def log_decision(self, time: int, line: bytes) -> int:
        self.lines.append(line + b"\n")
        return len(self.lines)

    @property
    def decision_lines(self) -> int:
        return len(self.lines)

    def take_decision_log(self) -> tuple[int, int, list[tuple[int, bytes]]]:
        lines, self.lines = self.lines, []
        return 7, len(lines), [(0, b"".join(lines))] if lines else []


class DataPlaneTests(SynchronousTestCase):
    """
    The log whose lines a data plane holds.
    """

    def setUp(self) -> None:
        self.plane, self.home = HeldLines(), directory(self)
        self.writes: list[Deferred[None]] = []
        self.log = DecisionLog(str(self.home), "test", Clock(), self.run_later, data_plane=self.plane)
        self.log.startService()

    def run_later(self, write: Any, *given: Any) -> Deferred[None]:
        write(*given)
        self.writes.append(Deferred())
        return self.writes[-1]

    def write(self, count: int) -> None:
        for id in range(count):
            self.log.write(DecisionLine(time=1, id=id))

    def test_many_lines(self) -> None:
        """
        So many lines are written together, without waiting for the timer; what was lost before is counted.
        """
        self.write(MAX_HELD - 1)
        self.assertEqual([], self.writes)

        self.write(1)

        (path,) = self.home.iterdir()
        self.assertEqual(MAX_HELD, len(path.read_bytes().splitlines()))
        self.assertEqual(7, self.log.lost)

    def test_blocked_disk(self) -> None:
        """
        While the disk takes nothing, lines are held up to a limit, and then lost and counted.
        """
        self.write(MAX_HELD)
        self.plane.lines = [b"{}\n"] * MAX_WAITING_LINES
        self.log.flush()
        self.assertEqual(MAX_WAITING_LINES, self.plane.decision_lines)

        self.write(1)
        self.log.flush()

        self.assertEqual(0, self.plane.decision_lines)
        self.assertEqual(7 + 7 + MAX_WAITING_LINES + 1, self.log.lost)


class ConfigTests(SynchronousTestCase):
    """
    `[policy]`, `--policy` and `msgnode check`.
    """

    def test_policy_option_names_the_source(self) -> None:
        """
        `--policy` names the source, and leaves the rest of the section as the file has it.
        """
        file = directory(self) / "node.toml"
        file.write_text('[policy]\nenforce = false\nsource = "push"\n')
        options = Options()

        options.parseOptions(["--config", str(file), "--policy", "here.json"])

        self.assertEqual(("here.json", False), (options.loaded.policy.source, options.loaded.policy.enforce))

    def test_policy_source_that_is_none_is_told_by_its_key(self) -> None:
        """
        A source that is none is told by its key.
        """
        why = self.assertRaises(ConfigError, check, {"policy": {"source": "ftp://x/y"}}, "node.toml")
        self.assertIn("policy.source: expected a file, a directory, an https address or push", str(why))

    def test_msgnode_check_looks_at_the_policies_too(self) -> None:
        """
        `msgnode check` looks at the policies too.
        """
        home = directory(self)
        policy, config = home / "policy.json", home / "node.toml"
        config.write_text(f'[policy]\nsource = "{policy}"\n')
        for text, code, words in (
            (json.dumps(document(rule("deny"))), 0, f"policy   {policy}"),
            ("[", 2, "policy.json:1:2"),
            (None, 2, "No such file"),
        ):
            policy.write_text(text) if text is not None else policy.unlink()

            result = CliRunner().invoke(main, ["check", str(config)])

            self.assertEqual(code, result.exit_code, result.output)
            self.assertIn(words, result.output)
