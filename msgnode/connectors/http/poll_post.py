"""
A POST to `/poll` from its body until its answer: all its messages are looked at, then all are taken.

Both is done in slices, so that an array of thousands leaves others their turn.
The client's next POST waits; of a session that goes elsewhere meanwhile the
rest is not taken, and its client is told so.
"""

import re
from collections.abc import Callable, Generator, Iterator

import msgspec
from msgspec import Raw
from twisted.internet.defer import Deferred

from msgnode.connectors.http.poll_connection import ENDED, SUPERSEDED_RETRY, TAKEN_OVER, PollConnection
from msgnode.node import Node
from msgnode.protocol.address import SESSION
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message, decode
from msgnode.structures.time_slices import MESSAGES, SIZE
from msgnode.transport.cork import Cork

OPENS = ("open", "re-open")
DISK_RETRY = 2  # seconds
LOOKED_AT = (
    8 * MESSAGES
)  # messages of which the form is checked in one slice; it costs less than to carry them

_VALUE = msgspec.json.Decoder(Raw)
_BEHIND = re.compile(r"trailing characters \(byte (\d+)\)")
_SPACE, _NEXT = re.compile(rb"[ \t\r\n]*"), re.compile(rb"([,\]])[ \t\r\n]*")

Step = Deferred[None] | None


class HTTPRefusal(Exception):
    """
    A request that is refused whole, with its HTTP status.
    """

    def __init__(self, status: int, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


def elements(body: bytes) -> Iterator[bytes]:
    """
    The messages in a body, one object or an array of them, as they came; each is found when it is asked for.
    """
    at = _end(_SPACE, body, 0)
    if body[at : at + 1] != b"[":
        yield body
        return
    at = _end(_SPACE, body, at + 1)
    if body[at : at + 1] == b"]":
        if _end(_SPACE, body, at + 1) != len(body):
            raise HTTPRefusal(400, "not JSON")
        return
    view = memoryview(body)
    while True:
        end = at + _length(view[at:])
        yield body[at:end].rstrip()
        found = _NEXT.match(body, end)
        if found is None:
            raise HTTPRefusal(400, "not JSON")
        at = found.end()
        if found[1] == b"]":
            if at != len(body):
                raise HTTPRefusal(400, "not JSON")
            return


def _length(view: memoryview) -> int:
    """
    How long the value is that stands there, with the space behind it.  Only msgspec's complaint says so.
    """
    try:
        _VALUE.decode(view)
    except msgspec.DecodeError as why:
        behind = _BEHIND.search(str(why))
        if behind is not None:
            return int(behind[1]) - 1
    except RecursionError:
        pass
    raise HTTPRefusal(400, "not JSON")


def _end(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
    found = pattern.match(body, at)
    assert found is not None
    return found.end()


def checked(data: bytes, longest: int) -> Message:
    if len(data) > longest:
        raise HTTPRefusal(413, f"a message has at most {longest} bytes, not {len(data)}")
    try:
        return decode(data)
    except Malformed as why:
        raise HTTPRefusal(400, str(why)) from None


class PollPost:
    """
    The messages that one client posted.
    """

    def __init__(self, node: Node, cork: Cork, client: PollConnection, body: bytes) -> None:
        self._node = node
        self._cork = cork
        self._client = client
        self._body = body

    def work(self, number: Callable[[int], int]) -> Generator[Step, None, int]:
        """
        The slices, and in the end how many messages there were; HTTPRefusal: none was taken.

        `number` is that of the first message, given the next one's.
        """
        self.check_disk()
        parts: list[bytes] = []
        most, longest = self._node.config.limits.messages_per_post, self._node.config.limits.message_bytes
        size = 0
        for part in elements(self._body):
            if len(parts) == most:
                raise HTTPRefusal(413, f"a POST has at most {most} messages; send the others with another")
            if checked(part, longest).to == SESSION and decode(part).type.lower() in OPENS:
                raise HTTPRefusal(400, "open a session with a POST of its own, without a token")
            parts.append(part)
            size += len(part)
            if len(parts) % LOOKED_AT == 0 or size >= LOOKED_AT * 128:
                size = 0
                yield None
        client = self._client
        first = number(client.accepted + 1)
        if not 1 <= first <= client.accepted + 1:
            raise HTTPRefusal(400, f"'seq' must be 1 to {client.accepted + 1}, not {first}")
        yield from self._take(parts, first)
        return len(parts)

    def _take(self, parts: list[bytes], first: int) -> Generator[Step, None, None]:
        """
        Pass the messages on; those that came before, by the number of the first one, are skipped.
        """
        client, session = self._client, self._client.session
        mine = session is not None and session.connection is client
        fresh = client.take_from(first, parts)
        done = 0
        while done < len(fresh):
            if done:
                yield None
                if client.session is None:
                    raise HTTPRefusal(401, ENDED)
                if client.session is not session or (session.connection is client) != mine:
                    raise HTTPRefusal(
                        409, f"{TAKEN_OVER}; some of these may have been taken", SUPERSEDED_RETRY
                    )
            done += self._take_some(fresh[done : done + MESSAGES])
            settled = self._node.input_order.settled(client)
            if settled is not None:
                yield settled
            self.check_disk()

    def _take_some(self, parts: list[bytes]) -> int:
        """
        Pass on as much as a read of a socket would bring, or up to what takes its time; how many that were.
        """
        client, held = self._client, self._node.input_order.held
        taken = size = 0
        with self._cork:
            while taken < len(parts) and size < SIZE and client not in held:
                size += len(parts[taken])
                self._node.receive(parts[taken], client)
                taken += 1
        client.took(taken)
        return taken

    def check_disk(self) -> None:
        """
        Who is told that a message was taken may forget it; so it must be written down by then.
        """
        failing = self._node.message_log.failing
        if failing is not None:
            again = "some of it may have been taken: post it again with the same 'seq'"
            raise HTTPRefusal(503, f"the node cannot write this down now: {failing}; {again}", DISK_RETRY)
