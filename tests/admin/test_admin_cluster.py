"""
The admin API in a domain of several nodes: reads of all nodes, and actions that reach the one that matters.
"""

from typing import Any

from tests.support.admin_case import REASON, A, B, C, url
from tests.support.admin_cluster import HERE, THERE, ClusterCase


class ReadTests(ClusterCase):
    """
    Reads
    """

    def test_all_nodes_are_asked_at_once(self) -> None:
        """
        A node that does not answer is named with the reason.
        """
        found = self.get("sessions?node=all")["nodes"]
        self.assertEqual({HERE, THERE}, set(found))
        self.assertEqual([C], [row["runtime"] for row in found[THERE]["sessions"]])
        self.assertEqual([HERE, THERE], [each["name"] for each in self.get("nodes")["nodes"]])

        self.cluster.kill(THERE)

        found = self.get("sessions?node=all")["nodes"]
        self.assertEqual(2, found[HERE]["total"])
        self.assertEqual((503, "no-path"), (found[THERE]["code"], found[THERE]["reason"]))

    def test_a_session_is_found_wherever_it_is(self) -> None:
        """
        The answer names its node.
        """
        found = self.get(f"sessions/{url(C)}")

        self.assertEqual((C, THERE), (found["session"]["runtime"], found["node"]))
        self.assertRefused(self.request("GET", f"sessions/{url(C + 'x')}"), 404, "there is no session")

        self.cluster.kill(THERE)
        self.assertRefused(self.request("GET", f"sessions/{url(C)}"), 503, "did not answer")


class ActionTests(ClusterCase):
    """
    Actions
    """

    def test_a_kick_reaches_the_node_that_has_the_session(self) -> None:
        """
        Its audit log has the operator's name, and both nodes' roles are the same.
        """
        viewer = self.named("viewer")
        refused = self.request("POST", f"sessions/{url(C)}/kick", {"reason": REASON}, viewer)
        self.assertRefused(refused, 403, "role")

        tried = self.act(f"sessions/{url(C)}/kick?dry_run=1")
        self.assertEqual(([C], [C]), (tried["targets"], self.other_sessions()))
        found = self.act(f"sessions/{url(C)}/kick")
        self.other.advance(6)

        self.assertEqual((1, THERE, []), (found["done"], found["node"], self.other_sessions()))
        line: dict[str, Any] = self.other.operations.audit.recent[-1]
        self.assertEqual(
            ("admin-token", "node", HERE, "kick"),
            tuple(line[key] for key in ("who", "via", "peer", "action")),
        )

    def test_a_ban_is_one_of_every_node(self) -> None:
        """
        And is lifted at every node; one that did not answer is named.
        """
        found = self.act("bans", kind="runtime", value=C, seconds=600)
        self.assertEqual((1, 1), (found["done"], found["details"]["nodes"][THERE]))
        self.assertEqual([C], [ban.value for ban in self.other.node.bans.all()])

        self.act(f"bans/{found['details']['ban']['id']}", "DELETE")
        self.assertEqual([], self.other.node.bans.all())

        self.cluster.kill(THERE)
        found = self.act("bans", kind="user", value="user://x", seconds=600)
        self.assertIn("is away", found["details"]["nodes"][THERE])

    def test_what_is_not_at_this_node_any_more_is_lifted_at_the_others(self) -> None:
        """
        A node that was away when a ban or a limit was lifted still has it: the request is repeated.
        """
        made = {
            "bans": self.act("bans", kind="user", value="user://x", seconds=600)["details"]["ban"],
            "limits": self.act("limits", kind="user", value="user://x", rate_messages=5)["details"]["limit"],
        }
        self.net.node.bans.remove(made["bans"]["id"])
        self.net.node.rates.temporary.remove(lambda each: True)

        for name, each in made.items():
            lifted = self.act(f"{name}/{each['id']}", "DELETE")

            self.assertEqual((1, {THERE: 1}), (lifted["done"], lifted["details"]["nodes"]))
            again = self.request("DELETE", f"{name}/{each['id']}", {"reason": REASON})
            self.assertRefused(again, 404, "there is no")
        self.cluster.kill(THERE)
        again = self.request("DELETE", f"bans/{made['bans']['id']}", {"reason": REASON})
        self.assertRefused(again, 503, "did not answer")
        self.assertEqual(([], []), (self.other.node.bans.all(), self.other.node.rates.temporary.all()))

    def test_lifting_at_a_node_that_has_nothing_to_lift_is_no_failure(self) -> None:
        """
        The number there is 0.
        """
        ban = self.act("bans", kind="user", value="user://x", seconds=600)["details"]["ban"]
        self.other.node.bans.remove(ban["id"])

        lifted = self.act(f"bans/{ban['id']}", "DELETE")

        self.assertEqual((1, {THERE: 0}), (lifted["done"], lifted["details"]["nodes"]))

    def test_what_is_the_same_at_every_node_counts_once(self) -> None:
        """
        Labels, a limit, and the end of a ban; each node says what it did itself.
        """
        labels, limit = f"sessions/{url(C)}/labels", {"kind": "user", "value": "user://x", "rate_messages": 5}
        ban = self.act("bans", kind="user", value="user://x")["details"]["ban"]
        self.assertEqual(1, self.act(f"{labels}?dry_run=1", labels=["canary"])["done"])

        done = [
            self.act(labels, labels=["canary"]),
            self.act("limits", **limit),
            self.act(f"bans/{ban['id']}", "DELETE"),
        ]

        for found in done:
            self.assertEqual((1, {THERE: 1}), (found["done"], found["details"]["nodes"]))

    def test_a_kick_with_a_ban_bans_at_every_node(self) -> None:
        """
        Wherever the session was: its client could come back at another node.
        """
        for runtime in (A, C):
            found = self.act(f"sessions/{url(runtime)}/kick", ban_seconds=600)
            self.assertIn(THERE, found["details"]["nodes"])
        for node in (self.node, self.other.node):
            self.assertEqual({A, C}, {ban.value for ban in node.bans.all()})

        self.cluster.kill(THERE)
        found = self.act(f"sessions/{url(B)}/kick", ban_seconds=600)
        self.assertIn("is away", found["details"]["nodes"][THERE])

    def test_many_are_kicked_at_every_node_when_their_number_is_confirmed(self) -> None:
        """
        That of all nodes together; one that does not answer is named.
        """
        body = {"filter": {"q": "runtime:"}}
        tried = self.act("sessions/kick?dry_run=1", **body)
        self.assertEqual((3, {A, B, C}), (tried["done"], set(tried["targets"])))
        refused = self.request("POST", "sessions/kick?confirm=2", {"reason": REASON, **body})
        self.assertRefused(refused, 409, "confirm=3")
        self.assertEqual([C], self.other_sessions())

        found = self.act("sessions/kick?confirm=3", **body)
        self.other.advance(6)

        self.assertEqual((3, 1, []), (found["done"], found["details"]["nodes"][THERE], self.other_sessions()))
        self.cluster.kill(THERE)
        found = self.act("sessions/kick?confirm=2", **body)
        self.assertIn("is away", found["details"]["nodes"][THERE])

    def test_a_ban_that_disconnects_clients_of_several_nodes_is_confirmed(self) -> None:
        """
        Their number at all nodes counts, and without it nothing is done at any.
        """
        body = {"reason": REASON, "kind": "peer", "value": "192.0.2.0/24"}
        self.assertRefused(self.request("POST", "bans?confirm=2", body), 409, "confirm=3")
        self.assertEqual(([], []), (self.node.bans.all(), self.other.node.bans.all()))

        self.assertEqual(3, self.act("bans?confirm=3", kind="peer", value="192.0.2.0/24")["done"])
        self.other.advance(6)
        self.assertEqual([], self.other_sessions())

    def test_a_lease_is_taken_back_at_the_node_that_has_the_session(self) -> None:
        """
        The session is told there, and the audit log of the node that did it has the operator.
        """
        at = "domain://msg-node.example.org/address-allocation"
        [leased] = self.far.ask(type="create", to=at, body={"scheme": "sip"})["body"]["value"]["allocated"]

        done = self.act(f"pools/{url(leased)}/take-back")

        self.assertEqual((THERE, [C]), (done["node"], done["targets"]))
        [told] = self.far.take()
        self.assertEqual({"resource": leased, "reason": "removed"}, told["body"])
        self.assertFalse(self.other.node.allocation.is_leased(leased))

    def test_a_local_session_needs_no_other_node(self) -> None:
        """
        It is kicked while the other one is down.
        """
        self.cluster.kill(THERE)

        self.assertEqual([A], self.act(f"sessions/{url(A)}/kick")["targets"])


class FullDiskTests(ClusterCase):
    """
    The node that is asked cannot write to its disk.
    """

    def setUp(self) -> None:
        super().setUp()
        for name in ("bans.json", "labels.json"):
            (self.state / name).mkdir()

    def refused(self, path: str, method: str = "POST", **body: Any) -> str:
        answer = self.request(method, path, {"reason": REASON, **body})
        self.assertRefused(answer, 503, "this is in effect, but cannot be written to disk")
        return str(answer.json()["description"])

    def bans(self) -> list[str]:
        return [ban.id for ban in self.other.node.bans.all()]

    def test_the_other_nodes_are_told_what_is_in_effect(self) -> None:
        """
        A ban, its end, and labels; the answer names the nodes that were not reached.
        """
        self.refused("bans", kind="user", value="user://x")
        [id] = self.bans()
        self.refused(f"bans/{id}", "DELETE")
        self.assertEqual([], self.bans())
        self.refused(f"sessions/{url(C)}/labels", labels=["canary"])
        self.assertEqual(["canary"], self.other.operations.inspector.labels(C))

        self.cluster.kill(THERE)
        self.assertIn(f"{THERE}: ", self.refused("bans", kind="user", value="user://x"))

    def test_the_other_nodes_are_told_of_a_ban_that_was_confirmed(self) -> None:
        """
        One that disconnects clients of several nodes.
        """
        self.refused("bans?confirm=3", kind="peer", value="192.0.2.0/24")

        self.assertEqual(1, len(self.bans()))

    def test_the_other_nodes_are_told_of_the_ban_of_a_kick(self) -> None:
        """
        The client could come back there.
        """
        self.refused(f"sessions/{url(A)}/kick", ban_seconds=600)

        self.assertEqual(1, len(self.bans()))

    def test_the_other_nodes_are_not_told_of_what_was_not_done(self) -> None:
        """
        Labels are not set without a line in the audit log.
        """
        (self.state / "audit").write_text("")

        answer = self.request("POST", f"sessions/{url(C)}/labels", {"reason": REASON, "labels": ["canary"]})

        self.assertRefused(answer, 503, "nothing was done")
        self.assertEqual([], self.other.operations.inspector.labels(C))
        self.flushLoggedErrors()
