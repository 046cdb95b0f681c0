"""
The pages of the dashboard on who makes the load, who holds the memory, and the configuration.
"""

from typing import Any
from urllib.parse import quote

from msgnode.config.reload import Reloading
from tests.support.admin_case import A, B
from tests.support.dashboard_case import DashboardCase
from tests.support.runtimes import dumps


def update(size: int = 10) -> bytes:
    return dumps({"id": 1, "type": "update", "from": f"{A}/x", "to": f"{B}/y", "body": {"value": "x" * size}})


class TopPageTests(DashboardCase):
    """
    `/top`
    """

    def test_who_sends_most_is_first_with_a_link_to_its_session(self) -> None:
        """
        By messages in, if the page is asked nothing else.
        """
        self.page("/top")
        self.device.send(*[update()] * 5)
        self.net.advance(1)

        page = self.page("/top")

        self.assertIn(f'<a href="/session?name={quote(A, safe="")}">', page)
        self.assertNotIn(f'<a href="/session?name={quote(B, safe="")}">', page)

    def test_load_is_summed_by_user_or_peer(self) -> None:
        """
        A peer links to its sessions; who showed no identity is nobody, and no filter finds those.
        """
        self.page("/top")
        self.device.send(*[update()] * 5)
        self.net.advance(1)

        self.assertRegex(self.page("/top?group=peer"), r'<a href="/sessions\?peer=[0-9.]+">')
        self.assertIn("<td>nobody</td>", self.page("/top?group=user&by=in_bytes"))

    def test_an_unknown_measure_is_refused_in_words(self) -> None:
        """
        With those that there are.
        """
        found = self.fetch("GET", "/top?by=weight", Authorization=f"Bearer {self.token}")

        self.assertEqual(400, found.status)
        self.assertIn("expected in_messages", found.body.decode())


class MemoryPageTests(DashboardCase):
    """
    `/memory`
    """

    def test_owners_and_the_largest_sessions_are_shown(self) -> None:
        """
        Estimates are called so.
        """
        self.browser.drop()
        self.device.send(*[update(1000)] * 3)

        page = self.page("/memory")

        for text in ("Messages that wait", "Connections", "about ", "Python and the rest", "segments"):
            self.assertIn(text, page)
        self.assertIn(f'<a href="/session?name={quote(B, safe="")}">', page)

    def test_only_an_admin_sees_backups_and_makes_them(self) -> None:
        """
        The form asks first, as each does.
        """
        viewer = {"Authorization": f"Bearer {self.named('viewer')}"}
        self.assertNotIn("Back up now", self.page("/memory", viewer))
        self.assertIn("Back up now", self.page("/memory"))

        asked = self.submit(self.log_in(), "backup").body.decode()
        self.assertIn("this concerns:", asked)
        refused = self.submit(self.log_in(self.named("operator")), "backup")
        self.assertEqual(403, refused.status)


class ConfigPageTests(DashboardCase):
    """
    `/config`
    """

    sections: dict[str, Any] = {
        "policy": {"source": "https://u:hush@policies.example/x"},
        "limits": {"sessions": 17},
    }

    def test_keys_are_shown_with_their_value_and_origin(self) -> None:
        """
        Filtered by a part of the key, and by whether it has its default.
        """
        page = self.page("/config?q=limits.sessions")

        self.assertIn("limits.sessions_per_ip", page)
        self.assertIn(">17<", page)
        self.assertNotIn("drain_seconds", page)
        self.assertIn("No key matches", self.page("/config?q=drain_seconds&only=changed"))

    def test_secrets_are_hidden(self) -> None:
        """
        Also the password in a URL.
        """
        page = self.page("/config")

        self.assertIn("https://***@policies.example/x", page)
        self.assertNotIn("hush", page)

    def test_a_key_that_waits_for_a_restart_is_named(self) -> None:
        """
        A key that was reloaded is of `runtime`.
        """
        config = self.node.config
        reloading = Reloading(config, lambda: config, [], [], lambda: None)
        reloading.needs_restart, reloading.changed = {"domain"}, {"limits.sessions"}
        self.net.operations.inspector.facts.reloading = reloading

        page = self.page("/config?only=restart")

        self.assertIn("1 key has", page)
        self.assertIn('<td class="name key">domain</td>', page)
        self.assertIn("<td>runtime</td>", self.page("/config?q=limits.sessions"))


class TokenPageTests(DashboardCase):
    """
    `/audit`
    """

    def test_named_tokens_are_listed_and_revoked(self) -> None:
        """
        By an admin; the token itself is on no page.
        """
        token = self.named("viewer")
        page = self.page("/audit")
        self.assertIn("<b>viewer</b>, viewer", page)
        self.assertNotIn(token, page)
        self.assertIn("What was asked", page)

        self.confirm(self.log_in(), "revoke", name="viewer")

        self.assertIn("There are none", self.page("/audit"))
        self.assertEqual(401, self.request("GET", "node", token=token).status)
