"""
`msgnode admin` in a domain of several nodes: a node that has not done what was asked is named.
"""

from tests.support.admin_case import REASON, A, B, C
from tests.support.admin_cluster import THERE, ClusterCase
from tests.support.admin_command import AdminCommandCase

WHY = ("--reason", REASON)


class NodeTests(ClusterCase, AdminCommandCase):
    """
    Verbs of which a node of the domain is away
    """

    def test_actions_that_reach_every_node_are_done(self) -> None:
        """
        With exit code 0.
        """
        self.shown("ban", "user", "user://x", *WHY)
        self.shown("limit", "user", "user://x", "--messages", "5", *WHY)
        self.shown("kick", "--filter", C, "--yes", *WHY)

        self.assertEqual(1, len(self.other.node.bans.all()))

    def test_a_node_that_is_away_is_named_and_the_command_fails(self) -> None:
        """
        What was done here is shown all the same.
        """
        self.cluster.kill(THERE)

        for words, done in (
            (("ban", "user", "user://x"), "0 clients disconnected"),
            (("limit", "user", "user://x", "--messages", "5"), "limit: done"),
            (("kick", A, "--for", "10m"), "kick: done to 1 session"),
            (("kick", "--filter", B, "--yes"), "kick: done to 1 session"),
            (("ban", "user", "user://y", "--dry-run"), "this would ban"),
        ):
            found = self.run_(*words, *WHY, exit_code=1)
            self.assertIn(done, found.stdout, words)
            self.assertIn("not done at 1 node", found.stderr, words)
            self.assertRegex(found.stderr, f"{THERE}: .*is away", words)
        [ban] = [each for each in self.node.bans.all() if each.kind == "user"]
        self.assertIn(THERE, self.run_("unban", ban.id, *WHY, exit_code=1).stderr)
        self.assertIn(THERE, self.shown("ban", "user", "user://z", "--json", *WHY, exit_code=1))

    def test_a_read_of_all_nodes_fails_if_one_does_not_answer(self) -> None:
        """
        The answers of the others are shown.
        """
        self.shown("sessions", "--node", "all")
        self.cluster.kill(THERE)

        self.assertIn(A, self.shown("sessions", "--node", "all", exit_code=1))
        self.assertIn(A, self.shown("sessions", "--node", "all", "--json", exit_code=1))
