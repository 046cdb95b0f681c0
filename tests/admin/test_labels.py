"""
Labels: the words that operators put on a session.
"""

from typing import Any

from msgnode.admin.actions.label_actions import LabelActions, LabelRequest
from msgnode.admin.api.endpoint import Call
from msgnode.cluster.operator_requests import Operator
from msgnode.protocol.errors import Rejected
from tests.support.admin_case import REASON, A, AdminCase, B, C, url
from tests.support.admin_cluster import THERE, ClusterCase
from tests.support.dashboard_case import DashboardCase
from tests.support.network import Network


class LabelTests(AdminCase):
    """
    A node with two clients.
    """

    def label(self, runtime: str, *labels: str) -> None:
        self.act(f"sessions/{url(runtime)}/labels", labels=list(labels))

    def test_a_session_has_the_labels_that_it_was_given_last(self) -> None:
        """
        And none after they are removed; who set them, and why, is in the list of labels.
        """
        self.label(A, "known-fault", "ticket:123", "known-fault")

        self.assertEqual(["known-fault", "ticket:123"], self.get(f"sessions/{url(A)}")["session"]["labels"])
        [row] = self.get("labels")["labels"]
        self.assertEqual((A, REASON, "admin-token"), (row["runtime"], row["reason"], row["by"]))
        self.label(A)
        self.assertEqual([], self.get(f"sessions/{url(A)}")["session"]["labels"])
        self.assertEqual([], self.get("labels")["labels"])

    def test_sessions_are_found_by_a_label(self) -> None:
        """
        A whole one.
        """
        self.label(B, "canary")

        self.assertEqual([B], [row["runtime"] for row in self.get("sessions?label=canary")["sessions"]])
        self.assertEqual(0, self.get("sessions?label=can")["matched"])

    def test_labels_survive_a_restart_and_the_session(self) -> None:
        """
        They belong to the runtimeURL, which may come back.
        """
        self.label(C, "old-battery")
        again = Network(state=str(self.state))
        for service in again.operations.services():
            service.startService()
            self.addCleanup(service.stopService)

        labels = again.operations.inspector.labels
        self.assertEqual((["old-battery"], []), (labels(C), labels(A)))

    def test_the_oldest_labels_without_a_session_make_room(self) -> None:
        """
        Those of sessions stay; if there are no others, a new one is refused, before anything is done.
        """
        operations = self.net.operations
        labels = LabelActions(operations.inspector, operations.audited, None, most=2)
        far = f"{C}-far"

        def label(runtime: str, is_dry_run: bool = False) -> Any:
            path, body = {"runtime": runtime}, LabelRequest(reason=REASON, labels=["x"])
            operator = Operator("anna", ("operator",))
            call = Call(operator, "", "api", path, None, body, is_dry_run)
            return self.successResultOf(labels.set(call)).details

        for runtime in (C, far, C):  # the labels of C are set again, so they are the newer ones
            label(runtime)
            self.net.advance(1)
        label(B, is_dry_run=True)
        self.assertEqual([["x"], ["x"]], [labels.of(C), labels.of(far)])

        self.assertEqual([far, C], [label(each)["dropped"] for each in (A, B)])

        self.assertEqual([["x"], ["x"], []], [labels.of(each) for each in (A, B, C)])
        self.assertRaises(Rejected, label, C)

    def test_a_label_is_a_word(self) -> None:
        """
        At most 8 of 40 characters, without spaces and commas.
        """
        for labels in (["a b"], ["a,b"], [""], ["-a"], ["x" * 41], [f"l{n}" for n in range(9)]):
            body = {"labels": labels, "reason": REASON}
            answer = self.request("POST", f"sessions/{url(A)}/labels", body)
            self.assertRefused(answer, 400, "labels: ")
        answer = self.request("POST", "sessions/nobody/labels", {"labels": ["x"], "reason": REASON})
        self.assertRefused(answer, 400, "runtime: expected a runtimeURL such as")

    def test_an_operator_sets_labels_and_a_viewer_reads_them(self) -> None:
        """
        The audit log has those of before; a dry run sets none.
        """
        path, body = f"sessions/{url(A)}/labels", {"labels": ["x"], "reason": REASON}
        self.assertEqual(403, self.request("POST", path, body, self.named("viewer")).status)
        self.assertEqual(200, self.request("POST", f"{path}?dry_run=1", body).status)
        self.assertEqual([], self.get("labels")["labels"])

        self.assertEqual(200, self.request("POST", path, body, self.named("operator")).status)
        self.label(A, "y")

        self.assertEqual((["x"], "label"), tuple(self.audit()[-1][key] for key in ("before", "action")))


class LabelPageTests(DashboardCase):
    """
    The form on the page of a session.
    """

    def test_a_session_is_labelled_on_its_page(self) -> None:
        """
        The label leads to the sessions that have it.
        """
        self.confirm(self.log_in(), "label", runtime=A, labels="canary, ticket:1")

        self.assertIn('href="/sessions?label=ticket%3A1"', self.page(f"/session?name={url(A)}"))
        self.assertIn("canary", self.page("/sessions?label=canary"))


class ClusterLabelTests(ClusterCase):
    """
    Two nodes of one domain.
    """

    def test_every_node_knows_the_labels(self) -> None:
        """
        A session may move.
        """
        self.act(f"sessions/{url(C)}/labels", labels=["canary"])

        for found in self.get("labels?node=all")["nodes"].values():
            self.assertEqual([C], [row["runtime"] for row in found["labels"]])
        self.assertEqual(["canary"], self.get(f"sessions/{url(C)}")["session"]["labels"])

    def relabel(self, *labels: str) -> None:
        """
        The second node is away when labels are set at the first one, and comes back.
        """
        self.cluster.kill(THERE)
        self.request("POST", f"sessions/{url(C)}/labels", {"reason": REASON, "labels": list(labels)})
        self.join(self.other, THERE)
        self.cluster.connect()
        for _ in range(5):
            self.net.advance(0.1)

    def test_a_node_that_comes_later_gets_the_labels(self) -> None:
        """
        Those that were set, changed or removed while it was away; it writes them to its disk.
        """
        for network in (self.net, self.other):
            for service in network.operations.services():
                if not service.running:
                    service.startService()
                    self.addCleanup(service.stopService)
        labels = self.other.operations.inspector.labels
        for wanted in (["canary"], ["ticket:1"], []):
            self.relabel(*wanted)

            self.assertEqual(wanted, labels(C))
        self.assertEqual([], self.get("labels")["labels"])
