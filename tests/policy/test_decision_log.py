"""
The log of decisions, and the configuration that leads to one.
"""

import json
from typing import Any

from click.testing import CliRunner
from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.cli.main import main
from msgnode.config.loader import check
from msgnode.config.schema import ConfigError
from msgnode.service.options import Options
from msgnode.service.wiring import decision_logs
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

    def test_mask(self) -> None:
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


class ConfigTests(SynchronousTestCase):
    """
    `[policy]`, `--policy` and `msgnode check`.
    """

    def test_option(self) -> None:
        """
        `--policy` names the source, and leaves the rest of the section as the file has it.
        """
        file = directory(self) / "node.toml"
        file.write_text('[policy]\nenforce = false\nsource = "push"\n')
        options = Options()

        options.parseOptions(["--config", str(file), "--policy", "here.json"])

        self.assertEqual(("here.json", False), (options.loaded.policy.source, options.loaded.policy.enforce))

    def test_mistakes(self) -> None:
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
