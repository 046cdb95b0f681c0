"""
Where policies come from, and how others take their place.
"""

import gc
import json
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.schema import ConfigError
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.policy.administration.document_edit import SWITCH_SECONDS, run_beside_reactor
from msgnode.policy.administration.policy_store import PolicyRejected, PolicyStore
from msgnode.protocol.errors import Rejected
from msgnode.service.wiring import make_policy_store
from tests.config.test_reload import logged
from tests.support.fakes import MemoryNode, directory
from tests.support.made_policies import document, rule

RUNTIME, OTHER = "runtime://example.org/a", "runtime://example.org/b"
CARRIED = {"actionType": {"in": ["create", "read"]}}
DENY, PERMIT = document(rule("deny", CARRIED)), document(rule("permit"))
TWO = document(rule("deny", {"actionType": {"equals": "read"}}))


class PoliciesTests(SynchronousTestCase):
    """
    A node whose policies are in a file, in a directory, or pushed.
    """

    def setUp(self) -> None:
        self.home = directory(self)
        self.file = self.home / "policy.json"
        self.log = logged(self)

    def write(self, what: Any, path: Path | None = None) -> None:
        text = what if isinstance(what, str) else json.dumps(what)
        (path or self.file).write_text(text)

    def begin(self, source: str | None = None, **options: Any) -> PolicyStore:
        """
        A node that starts, or starts again.
        """
        options = {"source": str(self.file) if source is None else source, **options}
        self.node = MemoryNode(state=str(self.home / "state"), policy=options)
        policies = make_policy_store(self.node, self.node.clock, self.run_or_wait)
        policies.startService()
        self.addCleanup(policies.stopService)
        return policies

    waits: list[tuple[Any, Any, Deferred[Any]]] | None = None

    def run_or_wait(self, function: Any, *arguments: Any) -> Deferred[Any]:
        if self.waits is None:
            return maybeDeferred(function, *arguments)
        self.waits.append((function, arguments, Deferred()))
        return self.waits[-1][2]

    def hold_back(self) -> list[tuple[Any, Any, Deferred[Any]]]:
        """
        What would run in a thread from here on, for the test to run when it likes.
        """
        self.waits = []
        return self.waits

    def look(self) -> None:
        """
        Let the time pass until the source is looked at again.
        """
        self.node.clock.advance(10)

    def code(self, type: str = "create") -> int:
        """
        What becomes of such a message: 200 delivered, else the code of the answer.
        """
        a, b = self.node.client(RUNTIME), self.node.client(OTHER)
        a.take()
        a.post(OTHER, type)
        if b.take():
            return 200
        code: int = a.take()[0]["body"]["code"]
        return code

    def push(self, policies: PolicyStore, what: Any, **how: Any) -> Any:
        text = what if isinstance(what, str) else json.dumps(what)
        return policies.push((("document", text),), "a test", **how)

    def assertRefused(self, pushed: Deferred[Any], code: int, *words: str) -> None:
        why: Any = self.failureResultOf(pushed, PolicyRejected).value
        self.assertEqual(code, why.code)
        for word in words:
            self.assertIn(word, str(why.body()))

    # -- files -------------------------------------------------------------------

    def test_policy_file_is_read_at_start_and_when_changed(self) -> None:
        """
        A file is read at the start, and again when it has changed.
        """
        self.write(DENY)
        policies = self.begin()
        before = self.node.enforcement.program
        self.assertIsNotNone(before)

        self.write(TWO)
        self.look()

        self.assertIsNot(before, self.node.enforcement.program)
        self.assertEqual([1, 2], [version.number for version in policies.versions])

    def test_what_says_the_same_changes_nothing_however_often(self) -> None:
        """
        What says the same changes nothing, however often it is written.
        """
        self.write(DENY)
        policies = self.begin()
        before = self.node.enforcement.program
        self.file.unlink()
        self.write(DENY)

        self.look()

        self.assertIs(before, self.node.enforcement.program)
        self.assertEqual(1, len(list(policies.versions)))

    def test_all_files_of_a_directory_count_together(self) -> None:
        """
        All files of a directory count together, in the order of their names, but an editor's and vectors.
        """
        folder = self.home / "policies"
        folder.mkdir()
        self.write(document(rule("permit", {"actionType": {"equals": "create"}})), folder / "1.json")
        self.write(DENY, folder / "2.json")
        self.write("half", folder / ".2.json.swp.json")
        self.write([{"expect": "deny"}], folder / "2.vectors.json")
        self.begin(str(folder))

        self.assertEqual(["s/p/r", "s~2/p/r"], self.node.enforcement.rules())

        (folder / "1.json").unlink()
        self.look()

        self.assertEqual(["s/p/r"], self.node.enforcement.rules())

    def test_bad_change(self) -> None:
        """
        A file that is wrong changes nothing; the log says where and what, once.
        """
        self.write(DENY)
        policies = self.begin()
        thousand = document(*(rule("permit", id=number) for number in range(999)), rule("prmit", id="bad"))
        for wrong, words in (
            (json.dumps(DENY)[:50], "ends in the middle"),
            ("<html></html>", "this looks like HTML"),
            (thousand, "/0/policies/0/rules/999/effect: expected permit or deny"),
        ):
            before = len(self.log)
            self.write(wrong)
            for _ in range(3):
                self.look()

            (said,) = self.log[before:]
            self.assertIn(words, said)
            self.assertIn("policy.json:1:", said)
            self.assertEqual((1, 403), (len(list(policies.versions)), self.code()))
        self.assertEqual(3, policies.failed)

    def test_file_that_is_gone_changes_nothing(self) -> None:
        """
        A file that is gone changes nothing; when it is there again it counts again.
        """
        self.write(DENY)
        policies = self.begin()
        self.file.unlink()
        self.look()
        self.assertIn("cannot be read: No such file", policies.wrong)

        self.write(TWO)
        self.look()

        self.assertEqual((200, ""), (self.code(), policies.wrong))

    def test_bad_start(self) -> None:
        """
        At the start a wrong file stops the node, unless it has a version that was good.
        """
        self.write("[")
        self.assertIn("policy.json:1:2", str(self.assertRaises(ConfigError, self.begin)))

        self.write(DENY)
        self.begin()
        self.write("[")
        self.begin()

        self.assertEqual(403, self.code())
        self.assertTrue(any("the stored version 1" in said for said in self.log))

    def test_bad_start_stays_known(self) -> None:
        """
        That the file is wrong is told until it is mended, though it is not read again meanwhile.
        """
        self.write(DENY)
        self.begin()
        self.write("[")
        policies = self.begin()

        self.look()
        self.assertIn("policy.json:1:2", policies.wrong)

        self.write(TWO)
        self.look()
        self.assertEqual("", policies.wrong)

    def test_kept_version_that_cannot_be_read_is_left_out(self) -> None:
        """
        A kept version that cannot be read is left out and named, and its number not used again.
        """
        self.write(DENY)
        self.begin()
        self.write("half", self.home / "state/policy/000007.json")
        self.write(TWO)

        policies = self.begin()

        self.assertEqual([1, 8], [version.number for version in policies.versions])
        self.assertTrue(any("000007.json" in said for said in self.log))

    def test_policies_take_effect_where_they_cannot_be_kept(self) -> None:
        """
        Policies take effect also where they cannot be kept.
        """
        self.write("in the way", self.home / "state")
        self.write(DENY)
        self.begin()

        self.assertEqual(403, self.code())
        self.assertTrue(any("could not be written to disk" in said for said in self.log))

    def test_push_that_cannot_be_kept_is_refused(self) -> None:
        """
        What is pushed and cannot be written down is refused with 503, because a restart would lose it.
        """
        self.write("in the way", self.home / "state")
        policies = self.begin("push")

        why: Any = self.failureResultOf(self.push(policies, DENY), PolicyRejected).value

        self.assertEqual(503, why.code)
        self.assertIn("the policies stay as they are", str(why))
        self.assertEqual(200, self.code())
        self.assertEqual([], list(policies.versions))
        (self.home / "state").unlink()
        self.assertEqual(1, self.successResultOf(self.push(policies, DENY)).number)
        self.assertEqual(403, self.code())

    # -- push ----------------------------------------------------------------------

    def test_pushed_policies_count_at_once_and_after_a_restart(self) -> None:
        """
        What is pushed counts at once, and after a restart.
        """
        policies = self.begin("push")
        self.assertEqual(200, self.code())

        version = self.successResultOf(self.push(policies, DENY))

        self.assertEqual((1, "a test"), (version.number, version.origin))
        self.assertEqual(403, self.code())
        self.begin("push")
        self.assertEqual(403, self.code())

    def test_push_elsewhere(self) -> None:
        """
        Where the policies come from elsewhere a push is 409, and names the place.
        """
        self.write(PERMIT)
        policies = self.begin()

        self.assertRefused(self.push(policies, DENY), 409, str(self.file))
        self.assertRefused(self.push(self.begin(""), DENY), 409, "policy.source")

    def test_push_wrong(self) -> None:
        """
        A document that is wrong is 400 with every problem, and changes nothing.
        """
        policies = self.begin("push")
        self.successResultOf(self.push(policies, DENY))

        self.assertRefused(self.push(policies, json.dumps(PERMIT)[:-5]), 400, "document:1:", "problems")
        self.assertRefused(
            self.push(policies, document(rule("x"), rule("y", id=2))), 400, "rules/0", "rules/1"
        )
        self.assertEqual((1, 403), (len(list(policies.versions)), self.code()))

    def test_push_old(self) -> None:
        """
        A version that is not newer is 409, unless it is forced.
        """
        policies = self.begin("push")
        self.successResultOf(self.push(policies, document(rule("deny", CARRIED), version=4)))

        self.assertRefused(self.push(policies, document(rule("permit"), version=4)), 409, "not newer than 4")
        self.assertRefused(self.push(policies, document(rule("permit"), version=3)), 409)
        self.assertEqual(403, self.code())
        self.successResultOf(self.push(policies, document(rule("permit"), version=3), force=True))
        self.assertEqual(200, self.code())

    def test_push_old_set(self) -> None:
        """
        The same holds for the version of each policy set.
        """
        policies = self.begin("push")
        sets: Any = [{**DENY[0], "version": 2}]
        self.successResultOf(self.push(policies, sets))

        old = self.push(policies, [{**PERMIT[0], "version": 2}])
        self.assertRefused(old, 409, "version 2 of policy set s is not newer")
        self.successResultOf(self.push(policies, [{**PERMIT[0], "version": 3}]))

    def test_if_match(self) -> None:
        """
        Who read another revision than the one that is live gets 412.
        """
        policies = self.begin("push")
        first = self.successResultOf(self.push(policies, DENY))

        second = self.successResultOf(self.push(policies, TWO, if_match=first.revision))

        self.assertRefused(self.push(policies, PERMIT, if_match=first.revision), 412, second.revision)

    def test_byte_order_mark(self) -> None:
        """
        A document that begins with a byte order mark, as some editors write it, is read and edited like any.
        """
        policies = self.begin("push")
        self.successResultOf(
            self.push(policies, "\ufeff" + json.dumps(document(rule("deny", CARRIED), version=3)))
        )

        self.assertRefused(self.push(policies, document(rule("permit"), version=2)), 409, "version 2")
        self.assertEqual(3, policies.content().version)
        commands = PolicyCommands(policies, self.node.enforcement)
        self.assertEqual(DENY, commands.policies({}, "a test")["document"]["policySets"])

    def test_half_character(self) -> None:
        """
        What no file could hold is refused like any document that is wrong.
        """
        policies = self.begin("push")
        for half in ("\ud800", "\udc80"):
            self.assertRefused(self.push(policies, f'[{{"id": "{half}"}}]'), 400, "is not UTF-8 here")

    def test_roll_back(self) -> None:
        """
        An older version is live again under a new number; only some are kept.
        """
        policies = self.begin("push", keep_versions=3)
        for made in (DENY, TWO, PERMIT):
            self.successResultOf(self.push(policies, made))
        self.assertEqual(200, self.code("read"))

        self.successResultOf(policies.roll_back(2, "a test"))

        self.assertEqual(403, self.code("read"))
        self.assertEqual([2, 3, 4], [version.number for version in policies.versions])
        kept = sorted(path.name for path in (self.home / "state/policy").iterdir())
        self.assertEqual(["000002.json", "000003.json", "000004.json"], kept)
        self.assertRefused(_caught(lambda: policies.roll_back(1, "a test")), 404, "2, 3, 4")

    def test_pushes_that_come_while_another_is_compiled_take(self) -> None:
        """
        Pushes that come while another is compiled take effect in order, none in part.
        """
        policies = self.begin("push")
        waits = self.hold_back()
        pushed = [self.push(policies, made) for made in (DENY, TWO, PERMIT)]
        live = []
        while waits:
            function, arguments, done = waits.pop(0)
            done.callback(function(*arguments))
            live.append(self.code("read"))

        self.assertEqual([1, 2, 3], [self.successResultOf(each).number for each in pushed])
        self.assertEqual([200, 403, 403, 403, 403, 200], live)

    def test_damaged_newest(self) -> None:
        """
        Where what was pushed last cannot be read everything is refused, until an operator says what is to be.
        """
        policies = self.begin("push")
        for made in (PERMIT, DENY):
            self.successResultOf(self.push(policies, made))
        newest = self.home / "state/policy/000002.json"
        newest.write_bytes(newest.read_bytes()[:40])

        policies = self.begin("push")

        self.assertFalse(self.node.enforcement.is_open)
        self.assertIsNone(policies.live)
        self.assertIn("000002.json was live", policies.wrong)
        self.assertTrue(any("000002.json" in said and "roll back to one of" in said for said in self.log))
        self.assertRefused(
            policies.edit(lambda content: content.remove("s"), "a test"), 503, "whole document"
        )
        self.successResultOf(policies.roll_back(1, "a test"))
        self.assertEqual((200, ""), (self.code(), policies.wrong))

    def test_damaged_only(self) -> None:
        """
        The same where it was the only one.
        """
        self.successResultOf(self.push(self.begin("push"), DENY))
        self.write("half", self.home / "state/policy/000001.json")

        policies = self.begin("push")

        self.assertFalse(self.node.enforcement.is_open)
        self.assertEqual(2, self.successResultOf(self.push(policies, DENY)).number)
        self.assertEqual(403, self.code())

    def test_empty_directory(self) -> None:
        """
        A directory without a document is no policy: the node does not start with it, nor go over to it.
        """
        folder = self.home / "policies"
        folder.mkdir()
        self.assertIn("no *.json in", str(self.assertRaises(ConfigError, self.begin, str(folder))))

        self.write(DENY, folder / "1.json")
        policies = self.begin(str(folder))
        (folder / "1.json").unlink()
        self.look()
        self.assertEqual(403, self.code())
        self.assertIn("no *.json in", policies.wrong)

        self.write([], folder / "1.json")
        self.look()
        self.assertEqual((200, ""), (self.code(), policies.wrong))

    def test_strict_store_refuses_unknown_obligations(self) -> None:
        """
        Unknown obligations are refused where that is wanted: at the start, by a push, and by a check.
        """
        unknown = document(rule("permit", emailto="ann@example.org"))
        self.write(unknown)
        other = {"source": str(self.file), "strict_obligations": True}
        strict = make_policy_store(node := MemoryNode(state="none", policy=other), node.clock)
        self.assertIn("emailto", str(self.assertRaises(ConfigError, strict.startService)))
        policies = self.begin("push", strict_obligations=True)

        self.assertRefused(self.push(policies, unknown), 400, "emailto")
        self.assertRefused(policies.check((("x", json.dumps(unknown)),)), 400, "emailto")

    def test_hot_reload_under_load(self) -> None:
        """
        A hot reload under load loses no message and mixes no versions: each is decided by the one live then.
        """
        policies = self.begin("push", keep_versions=3)
        a, b = self.node.client(RUNTIME), self.node.client(OTHER)
        waits = self.hold_back()
        for turn in range(1, 31):  # of two rules, that both mark the message, so that a mixture would show
            marks = [rule("permit", id=n, set={f"body.{name}": turn}) for n, name in enumerate("xy")]
            self.push(policies, document(*marks, version=turn))
        sent, seen = 0, []
        while waits:
            function, arguments, done = waits.pop(0)
            made = function(*arguments)
            for after in (False, True):
                if after:
                    done.callback(made)
                live = policies.live.number if policies.live is not None else None
                for _ in range(5):
                    a.post(OTHER, "create", id=sent)
                    sent += 1
                for message in b.take():
                    seen.append(message["id"])
                    body = message.get("body", {})
                    self.assertEqual((live, live), (body.get("x"), body.get("y")))

        self.assertEqual([], a.take())
        self.assertEqual(list(range(sent)), seen)
        assert policies.live is not None
        self.assertEqual(30, policies.live.number)

    def test_two_edits_at_once_are_both_made(self) -> None:
        """
        Two changes at once are both made, the second to what the first left.
        """
        policies = self.begin("push")
        self.successResultOf(self.push(policies, {"groups": {"staff": ["eve@x"]}, "policySets": DENY}))
        waits = self.hold_back()
        made = [
            policies.edit(lambda content: content.groups["staff"].remove("eve@x"), "a test"),
            policies.edit(lambda content: content.groups["staff"].append("bob@x"), "a test"),
            policies.edit(lambda content: content.group("nobody"), "a test"),
        ]
        while waits:
            function, arguments, done = waits.pop(0)
            done.callback(function(*arguments))

        self.assertEqual([2, 3], [self.successResultOf(each).number for each in made[:2]])
        self.assertEqual({"staff": ["bob@x"]}, policies.content().groups)
        self.assertEqual(404, self.failureResultOf(made[2], Rejected).value.code)

    def test_file_that_is_no_text_is_refused_by_line_and_column(self) -> None:
        """
        A file that is no text is refused by line and column.
        """
        self.write(DENY)
        policies = self.begin()
        self.file.write_bytes(b'[\n"\xff"]')

        self.look()

        self.assertIn("policy.json:2:2", policies.wrong)


class GentleTests(SynchronousTestCase):
    """
    Compiling in threads.
    """

    def test_interpreter_is_as_before_after_the_last_compile(self) -> None:
        """
        When the last of several is done the interpreter is as it was before the first.
        """
        before = sys.getswitchinterval(), gc.isenabled()
        first, second = Event(), Event()
        began = [Event(), Event()]

        def hold(number: int, until: Event) -> None:
            began[number].set()
            until.wait(10)

        threads = [
            Thread(target=run_beside_reactor, args=(hold, n, e)) for n, e in enumerate((first, second))
        ]
        for thread, has_begun in zip(threads, began, strict=True):
            thread.start()
            has_begun.wait(10)
        first.set()
        threads[0].join()
        self.assertAlmostEqual(SWITCH_SECONDS, sys.getswitchinterval())
        second.set()
        threads[1].join()

        self.assertEqual(before, (sys.getswitchinterval(), gc.isenabled()))


def _caught(call: Any) -> Deferred[Any]:
    return maybeDeferred(call)
