"""
The admin listener of a node in memory, as the command line reaches it.
"""

from urllib.parse import urlsplit

from msgnode.cli.links.admin_client import AdminHTTP, Answer
from tests.support.http_client import HTTPClient
from tests.support.network import Network


class MemoryAdminHTTP(AdminHTTP):
    """
    Requests to the admin listener of `network`; or an error that every request meets.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.error: Exception | None = None
        self.answer: Answer | None = None  # in the place of the node's
        self.tokens: list[str] = []

    def request(self, method: str, url: str, token: str, body: bytes | None = None) -> Answer:
        self.tokens.append(token)
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        client = HTTPClient(self.network, "admin")
        response = client.request(
            method, path, body or b"", Authorization=f"Bearer {token}", Host=parts.netloc
        )
        return Answer(response.status, response.body)
