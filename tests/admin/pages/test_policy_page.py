"""
The page on policies: what is live, what decided, what a message would meet, and the way back.
"""

from typing import Any
from urllib.parse import urlencode

from tests.support.admin_case import A, B
from tests.support.dashboard_case import DashboardCase
from tests.support.made_policies import document, rule
from tests.support.runtimes import dumps

DENY, PERMIT = document(rule("deny", {"actionType": {"equals": "read"}})), document(rule("permit"))


class PolicyPageTests(DashboardCase):
    """
    A node whose policies are pushed.
    """

    sections: dict[str, Any] = {"policy": {"source": "push"}}

    def setUp(self) -> None:
        super().setUp()
        self.net.policies.startService()
        self.push(DENY)

    def push(self, policies: Any) -> None:
        answer = self.request("PUT", "policy/policies", policies, **{"X-Reason": "for a test"})
        self.assertEqual(200, answer.status, answer.body)

    def test_page_has_the_version_its_rules_and_the_last_refusals(self) -> None:
        """
        Which rules decide, and which never did?
        """
        self.assertIn("Never used: s/p/r", self.page("/policies"))

        self.device.send(dumps({"id": 1, "type": "read", "from": A, "to": B}))
        self.net.advance(1)
        page = self.page("/policies")

        self.assertIn("Version 1", page)
        self.assertIn("s/p/r</td>", page)
        self.assertIn(f"read from {A} to {B}", page)

    def test_a_message_is_explained_test_by_test(self) -> None:
        """
        The form is in the URL, so it works without JavaScript; a mistake is told in its words.
        """
        query = {"from": A, "to": B, "type": "read"}

        page = self.page(f"/policies?{urlencode(query)}")
        self.assertIn("<b>deny</b> by s/p/r", page)
        self.assertIn("actionType equals", page)
        self.assertIn("no rule applies", self.page(f"/policies?{urlencode({**query, 'type': 'create'})}"))

        self.assertIn(
            "&#39;point&#39; must be one of", self.page(f"/policies?{urlencode({**query, 'point': 'x'})}")
        )

    def test_an_older_version_is_made_live_again(self) -> None:
        """
        After the page has said which, with a line in the audit log.
        """
        self.push(PERMIT)
        manager = self.log_in(self.named("policy-manager", "viewer"))

        done = self.confirm(manager, "rollback", number="1")

        self.assertIn(b"it is live again, as version 3", done.body)
        self.assertIn("Version 3", self.page("/policies", manager))
        [line] = [line for line in self.audit() if line["action"] == "policy rollback"]
        self.assertEqual(("page", "it is a test", ["1"]), (line["via"], line["reason"], line["target"]))

    def test_page_is_for_policy_managers(self) -> None:
        """
        Others have neither the page nor the action.
        """
        viewer = self.log_in(self.named("viewer"))

        self.assertEqual(403, self.fetch("GET", "/policies", **viewer).status)
        self.assertEqual(403, self.submit(viewer, "rollback", number="1").status)
        self.assertNotIn("/policies", self.page("/", viewer))

    def test_a_policy_manager_who_is_no_viewer_has_this_page_alone(self) -> None:
        """
        After the login it is the first one, and the menu has no other.
        """
        manager = self.log_in(self.named("policy-manager"))

        self.assertIn('<a href="/policies"', self.page("/policies", manager))
        self.assertNotIn('<a href="/sessions"', self.page("/policies", manager))
        first = self.fetch("GET", "/", **manager)
        self.assertEqual((303, "/policies"), (first.status, first.headers["Location"]))
        self.assertEqual(403, self.fetch("GET", "/sessions", **manager).status)
        self.push(PERMIT)
        self.assertIn(b"it is live again", self.confirm(manager, "rollback", number="1").body)

    def test_rules_with_hostile_names_are_escaped(self) -> None:
        """
        Whoever writes policies writes no pages.
        """
        self.push(document(rule("deny", {"actionType": {"equals": "read"}}, id="<script>x</script>")))

        page = self.page(f"/policies?{urlencode({'from': A, 'to': B, 'type': 'read'})}")

        self.assertNotIn("<script>x", page)
        self.assertIn("&lt;script&gt;x", page)
