"""
A POST to `/poll`, from its body until its answer: all messages are checked, then all are accepted.

Both steps run in slices, so that an array of thousands does not block other
clients.  The client's next POST waits.  If another connection takes the session
over meanwhile, the remaining messages are refused, and the answer says so.
"""

import re
from collections.abc import Callable, Generator, Iterator

import msgspec
from msgspec import Raw
from twisted.internet.defer import Deferred

from msgnode.connectors.http.poll_connection import (
    ENDED,
    REMOVED_TEXT,
    SUPERSEDED_RETRY_SECONDS,
    TAKEN_OVER,
    PollConnection,
)
from msgnode.node import Node
from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import REMOVED, SUPERSEDED
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message, decode
from msgnode.structures.time_slices import MESSAGES, SLICE_BYTES
from msgnode.transport.cork import Cork

OPENS = ("open", "re-open")
DISK_RETRY_SECONDS = 2
LOOKED_AT = 8 * MESSAGES  # messages checked in one slice; to check one costs less than to route it

_VALUE = msgspec.json.Decoder(Raw)
_BEHIND = re.compile(r"trailing characters \(byte (\d+)\)")
_SPACE, _NEXT = re.compile(rb"[ \t\r\n]*"), re.compile(rb"([,\]])[ \t\r\n]*")

Step = Deferred[None] | None


class HTTPRefusal(Exception):
    """
    The refusal of a whole request, with its HTTP status.
    """

    def __init__(self, status: int, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


def elements(body: bytes) -> Iterator[bytes]:
    """
    Yields the messages in a body, which is one object or an array of them, as the bytes that came.
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
    Returns the length of the JSON value at the start, with the space after it; only msgspec's error has it.
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
    One POST of a client, with its messages.
    """

    def __init__(self, node: Node, cork: Cork, client: PollConnection, body: bytes) -> None:
        self._node = node
        self._cork = cork
        self._client = client
        self._body = body

    def work(self, number: Callable[[int], int]) -> Generator[Step, None, int]:
        """
        Accept the messages in slices; returns how many there were.  Raises HTTPRefusal if none was accepted.

        `number` gets the number that is expected, and returns that of the first message.
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
        Route the messages; those that came before, by the number of the first one, are skipped.
        """
        client, session = self._client, self._client.session
        if session is None:
            raise self._gone()
        mine = session.connection is client
        outbox = session.mailbox.outbox
        if not mine and outbox is not None and outbox.client_requested:
            # The client has resumed on another connection, and sends the messages again there.
            raise HTTPRefusal(409, f"{TAKEN_OVER}; none of these was taken", SUPERSEDED_RETRY_SECONDS)
        fresh = client.take_from(first, parts)
        done = 0
        while done < len(fresh):
            if done:
                yield None
                if client.session is None:
                    raise self._gone()
                if client.session is not session or (session.connection is client) != mine:
                    raise HTTPRefusal(
                        409, f"{TAKEN_OVER}; some of these may have been taken", SUPERSEDED_RETRY_SECONDS
                    )
            done += self._take_some(fresh[done : done + MESSAGES])
            settled = self._node.input_order.settled(client)
            if settled is not None:
                yield settled
            self.check_disk()

    def _gone(self) -> HTTPRefusal:
        """
        Returns the refusal for a client without a session: a newer client replaced it, or the session ended.
        """
        why = self._client.refusal
        if why is not None and why.code == SUPERSEDED.code:
            return HTTPRefusal(
                409, f"{TAKEN_OVER}; some of these may have been taken", SUPERSEDED_RETRY_SECONDS
            )
        if why is not None and why.code == REMOVED.code:
            return HTTPRefusal(410, REMOVED_TEXT, None if why.retry_after is None else round(why.retry_after))
        return HTTPRefusal(401, ENDED)

    def _take_some(self, parts: list[bytes]) -> int:
        """
        Route about as many messages as one read of a socket has, or up to one that must wait; returns their
        number.
        """
        client, pending = self._client, self._node.input_order.pending
        taken = size = 0
        with self._cork:
            while taken < len(parts) and size < SLICE_BYTES and client not in pending:
                size += len(parts[taken])
                self._node.receive(parts[taken], client)
                taken += 1
        client.took(taken)
        return taken

    def check_disk(self) -> None:
        """
        Refuse the POST while the disk fails: a client may forget an accepted message, so it must be on disk.
        """
        failing = self._node.message_log.failing
        if failing is not None:
            again = "some of it may have been taken: post it again with the same 'seq'"
            raise HTTPRefusal(
                503, f"the node cannot write to disk now: {failing}; {again}", DISK_RETRY_SECONDS
            )
