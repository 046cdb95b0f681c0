"""
The conversation of README.md, by a reader who takes time over each step.
"""

import json
import re

from twisted.trial.unittest import SynchronousTestCase

from tests.support.examples import sections
from tests.support.http_client import HTTPClient, Response
from tests.support.network import Network

BLOCKS = [block for block in sections("README.md")["A conversation"] if block.info in ("sh", "output")]
_CURL = re.compile(
    r"""(?:(\w+)=\$\()?curl -s(?: -H "Authorization: Bearer \$(\w+)")? "?\$poll([^" ]*)"?(?: -d '([^']*)')?"""
)
PAUSE = 90  # seconds between two steps


class ConversationTests(SynchronousTestCase):
    """
    A node of the domain localhost, in memory.
    """

    def setUp(self) -> None:
        self.net = Network(domain="localhost")
        self.tokens: dict[str, str] = {}

    def step(self, name: str, token: str, query: str, body: str) -> Response | None:
        """
        One request, and the token it gives to this name.
        """
        headers = {"Authorization": f"Bearer {self.tokens[token]}"} if token else {}
        client = HTTPClient(self.net)
        client.start("POST" if body else "GET", f"/poll{query}", body.encode(), **headers)
        self.net.advance(2)
        if name and client.response is not None:
            self.tokens[name] = client.response.json()["messages"][0]["body"]["runtimeToken"]
        return client.response

    def test_the_conversation_may_take_minutes(self) -> None:
        """
        A pause of a minute and a half between any two steps changes no answer.
        """
        expected, found = [], []
        for block in BLOCKS:
            if block.info == "output":
                expected += [json.loads(text) for text in re.split(r"\n(?=\{)", block.text)]
                continue
            for name, token, query, body in _CURL.findall(block.text):
                response = self.step(name, token, query, body)
                assert response is not None
                if not name:
                    found.append(response.json())
            self.net.advance(PAUSE)

        self.assertEqual(5, len(expected))
        self.assertEqual(expected, found)
