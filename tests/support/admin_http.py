"""
The admin listener of a node in memory, as the command line reaches it.
"""

from collections.abc import Callable, Iterator
from http.client import IncompleteRead
from urllib.parse import urlsplit

from msgnode.cli.links.admin_client import AdminHTTP, Answer
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.operators import Stream


class MemoryAdminHTTP(AdminHTTP):
    """
    Requests to the admin listener of `network`; or an error that every request meets.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.error: Exception | None = None
        self.answer: Answer | None = None  # in the place of the node's
        self.tokens: list[str] = []
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None  # what happens while a stream is read
        self.is_cut_off = False  # streams are, in the place of a Ctrl-C

    def request(self, method: str, url: str, token: str, body: bytes | None = None) -> Answer:
        self.tokens.append(token)
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        client = HTTPClient(self.network, "admin")
        headers = {"Authorization": f"Bearer {token}", "Host": parts.netloc, "User-Agent": "msgnode-cli"}
        client.start(method, path, body or b"", **headers)
        self.network.pump()
        for _ in range(40):
            if client.response is not None:
                return Answer(client.response.status, client.response.body)
            self.network.advance(0.5)
        raise TimeoutError

    def lines(self, url: str, token: str) -> Answer | Iterator[bytes]:
        parts = urlsplit(url)
        stream = Stream(self.network, f"{parts.path}?{parts.query}", Authorization=f"Bearer {token}")
        if stream.status != 200:
            found = stream.http.response
            assert found is not None
            return Answer(found.status, found.body)
        return self._lines_of(stream)

    def _lines_of(self, stream: Stream) -> Iterator[bytes]:
        self.meanwhile()
        self.network.advance(1)
        yield from stream.text.encode().splitlines(keepends=True)
        raise IncompleteRead(b"") if self.is_cut_off else KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        """
        Lets the time of the node pass; the third time is a Ctrl-C.
        """
        self.pauses.append(seconds)
        if len(self.pauses) == 3:
            raise KeyboardInterrupt
        self.network.advance(seconds)
