"""
Lines of the audit log: what an action was asked to do.
"""

from tests.support.admin_case import REASON, A, AdminCase, C, url
from tests.support.admin_command import AdminCommandCase


class AskedTests(AdminCase):
    """
    Actions of an operator.
    """

    def test_a_line_has_what_was_asked(self) -> None:
        """
        For how long a ban, to how much a limit; the reason is beside it, and a token is nowhere.
        """
        self.act("bans", kind="runtime", value=C, seconds=60)
        self.assertEqual({"kind": "runtime", "value": C, "seconds": 60}, self.audit()[-1]["asked"])
        self.act("limits", kind="session", value=A, rate_messages=5)
        self.assertEqual(5, self.audit()[-1]["asked"]["rate_messages"])
        self.act(f"sessions/{url(A)}/kick", end=True)
        self.assertTrue(self.audit()[-2]["asked"]["end"])
        token = self.act("tokens", name="grafana", roles=["viewer"])["details"]["token"]
        self.assertEqual(["viewer"], self.audit()[-1]["asked"]["roles"])

        self.assertNotIn(token, str(self.audit()))
        self.assertEqual(REASON, self.audit()[-1]["reason"])


class ShownTests(AdminCommandCase):
    """
    `msgnode admin audit`
    """

    def test_fields_that_only_some_lines_have_can_be_shown(self) -> None:
        """
        They are empty in the others.
        """
        self.act("bans", kind="runtime", value=C, seconds=60)
        self.act("undrain")

        self.assertShows(("undrain", '"seconds": 60'), "audit", "--columns", "action,asked,before")
