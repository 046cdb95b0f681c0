"""
What a newcomer is told once the node listens.
"""

from io import StringIO

from twisted.trial.unittest import SynchronousTestCase

from msgnode.service.welcome import Welcome


class Place:
    """
    A listener that is up.
    """

    def __init__(self, kind: str, where: str, scheme: str = "http") -> None:
        self.kind, self.where, self.scheme = kind, where, scheme


class WelcomeTests(SynchronousTestCase):
    """
    After all listeners are up.
    """

    def test_a_newcomer_is_told_where_everything_really_is(self) -> None:
        """
        With the ports as they are, and the schemes; and how to go on.
        """
        said = StringIO()
        places = [
            Place("admin", "127.0.0.1:9392"),
            Place("web", "0.0.0.0:9443", "https"),
            Place("line", "[::1]:1"),
            Place("web", "unix:/run/msgnode.sock"),
        ]

        Welcome("go on there", places, said).startService()

        self.assertEqual(
            "\n"
            "The node is up; Ctrl-C stops it.\n"
            "  operators:          http://127.0.0.1:9392/live and /metrics\n"
            "  pages and clients:  https://0.0.0.0:9443/\n"
            "  devices, by TCP:    [::1]:1\n"
            "  pages and clients:  unix:/run/msgnode.sock\n"
            "To see a message travel, follow 'A conversation' in README.md.\n"
            "go on there\n\n",
            said.getvalue(),
        )
