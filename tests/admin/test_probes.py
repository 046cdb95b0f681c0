"""
`POST /api/v1/probe`: what would become of a message, with policies.
"""

from typing import Any

from tests.support.admin_case import A, AdminCase, B, url
from tests.support.made_policies import rule, use


class ProbeTests(AdminCase):
    """
    A node with two clients and policies.
    """

    def probe(self, type: str = "create", **fields: Any) -> Any:
        answer = self.request("POST", "probe", {"from": f"{A}/x", "to": f"{B}/y", "type": type, **fields})
        self.assertEqual(200, answer.status, answer.body)
        return answer.json()

    def test_a_message_that_no_rule_is_about_passes_by_the_default(self) -> None:
        """
        It is refused if the default says so.
        """
        use(self.node, rule("deny", {"actionType": {"equals": "delete"}}))
        self.assertEqual(("delivered", ""), (self.probe()["outcome"], self.probe()["rule"]))

        self.node.config.policy.default_in = "deny"
        self.node.apply()

        self.assertEqual("refused", self.probe()["outcome"])

    def test_what_is_not_enforced_refuses_nothing(self) -> None:
        """
        The message would pass, and the probe says what the policies decide all the same.
        """
        use(self.node, rule("deny", {"actionType": {"equals": "delete"}}))
        self.node.config.policy.enforce = False

        found = self.probe("delete")

        self.assertEqual(("delivered", "s/p/r"), (found["outcome"], found["rule"]))
        text = "1 session would get it now; the policies decide deny, but are not enforced"
        self.assertEqual(text, found["text"])
        [*_, word] = self.get(f"sessions/{url(A)}?to={B}/y&type=delete")["policy"]
        self.assertEqual(("deny", True), (word["effect"], word["passes"]))

    def test_the_rule_that_decides_is_named(self) -> None:
        """
        And its decision explained.
        """
        use(self.node, rule("deny", {"actionType": {"equals": "delete"}}))

        found = self.probe("delete")

        self.assertEqual(("refused", "s/p/r"), (found["outcome"], found["rule"]))
        self.assertEqual("the policies decide deny", found["text"])
        self.assertEqual("deny", found["policy"]["effect"])

    def test_the_user_of_the_sender_counts(self) -> None:
        """
        As if the message came from its session.
        """
        use(self.node, rule("deny", {"srcUsername": {"equals": "ann@example.org"}}))
        self.assertEqual("delivered", self.probe()["outcome"])

        self.node.sessions.get(A).identity = "ann@example.org"

        found = self.probe()
        self.assertEqual(("refused", "deny"), (found["outcome"], found["policy"]["effect"]))
