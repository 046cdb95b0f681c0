"""
Requests and responses on their way between this node and one member: those that leave in parts, within a
window, and those that come in parts.
"""

from collections import deque

import msgspec

from msgnode.cluster.membership import Members
from msgnode.cluster.relay.wire import (
    HEAD_BYTES,
    AnyStatement,
    Cancel,
    Part,
    Read,
    RelayedRequest,
    RelayedResponse,
    encode,
)

READ_BYTES = 16 * 1024  # after which they are reported as read


class _Leaving(msgspec.Struct, eq=False):
    """
    A request or response that leaves; `at` is the number of bytes of its body that have left, -1: not even
    its head.
    """

    head: RelayedRequest | RelayedResponse
    body: memoryview
    at: int = -1

    @property
    def is_response(self) -> bool:
        return isinstance(self.head, RelayedResponse)


class LeavingBodies:
    """
    Requests and responses that leave for a member: one part of each in turn, so that a long one delays no
    short one.

    `size` is the number of bytes that wait here; at most `window` are on their way.
    """

    def __init__(self, members: Members, node: str, window: int) -> None:
        self.size = 0
        self._window = window
        self._members = members
        self._node = node
        self._part_bytes = members.max_payload - HEAD_BYTES
        self._waiting: deque[_Leaving] = deque()
        self._urgent: deque[bytes] = deque()  # without a body: no window holds them back
        self._unread = 0

    def put(self, head: RelayedRequest | RelayedResponse, body: bytes) -> None:
        head.size, head.data = len(body), b""
        if isinstance(head, RelayedRequest):
            head_bytes = len(head.query.encode()) + len(head.identity.encode()) + len(head.path.encode())
            head_bytes += sum(len(name) + len(value.encode()) for name, value in head.headers)
        else:
            head_bytes = 0
        self.size += len(body)
        # The head of a request has a query of its client's, so it may leave with no data at all.
        part = max(0, self._part_bytes - head_bytes)
        if len(body) <= part and not self._waiting and self._unread < self._window and not self._urgent:
            head.data = body
            if self._send(encode(head)):
                self.size -= len(body)
                return
            head.data = b""
        self._waiting.append(_Leaving(head, memoryview(body)))
        self.go_on()

    def drop(self, number: int, is_response: bool) -> bool:
        """
        Drop what is left of a request or response. True: nothing of it has left.
        """
        for each in self._waiting:
            if each.head.number == number and each.is_response is is_response:
                self.size -= len(each.body) - max(0, each.at)
                self._waiting.remove(each)
                return each.at < 0
        return False

    def say(self, statement: Cancel | Read) -> None:
        self._urgent.append(encode(statement))
        self.go_on()

    def was_read(self, size: int) -> None:
        self._unread = max(0, self._unread - size)
        self.go_on()

    def go_on(self) -> None:
        """
        Send what waits, as far as there is room.
        """
        while self._urgent:
            if not self._members.send(self._node, self._urgent[0]):
                return
            self._urgent.popleft()
        while self._waiting and self._unread < self._window:
            each = self._waiting.popleft()
            if not self._send(encode(self._next(each))):
                self._waiting.appendleft(each)
                return
            if each.at < 0:
                each.at = 0
            else:
                sent = min(self._part_bytes, len(each.body) - each.at)
                each.at += sent
                self.size -= sent
            if each.at < len(each.body):
                self._waiting.append(each)

    def _next(self, each: _Leaving) -> AnyStatement:
        if each.at < 0:
            return each.head
        data = bytes(each.body[each.at : each.at + self._part_bytes])
        return Part(each.head.number, each.is_response, data)

    def _send(self, payload: bytes) -> bool:
        if not self._members.send(self._node, payload):
            return False
        self._unread += len(payload)
        return True


class TooLong(ValueError):
    """
    The error of a body that is longer than it may be, or than it said.
    """


class ComingBodies:
    """
    Requests and responses that come from a member. `most` is the length of the longest body, `most_together`
    that of all that are incomplete.
    """

    def __init__(self, most: int, most_together: int) -> None:
        self._most = most
        self._most_together = most_together
        self._together = 0
        self._incomplete: dict[tuple[int, bool], tuple[RelayedRequest | RelayedResponse, bytearray]] = {}
        self._unsaid = 0

    def begun(self, head: RelayedRequest | RelayedResponse) -> RelayedRequest | RelayedResponse | None:
        """
        The request or response with its body in `data`, if it is whole. Raises TooLong.
        """
        if len(head.data) > head.size:
            raise TooLong(f"{len(head.data)} bytes of a body of {head.size}")
        if len(head.data) == head.size:
            return head
        if head.size > self._most or self._together + head.size > self._most_together:
            raise TooLong(f"there is no room for a body of {head.size} bytes")
        key = head.number, isinstance(head, RelayedResponse)
        self._forget(key)
        self._together += head.size
        self._incomplete[key] = head, bytearray(head.data)
        return None

    def part(self, part: Part) -> RelayedRequest | RelayedResponse | None:
        """
        The request or response that the part completes. Raises TooLong.
        """
        key = part.number, part.is_response
        found = self._incomplete.get(key)
        if found is None:
            return None  # it was dropped
        head, body = found
        body += part.data
        if len(body) < head.size:
            return None
        self._forget(key)
        if len(body) > head.size:
            raise TooLong(f"{len(body)} bytes of a body of {head.size}")
        head.data = bytes(body)
        return head

    def drop(self, number: int, is_response: bool) -> None:
        self._forget((number, is_response))

    def _forget(self, key: tuple[int, bool]) -> None:
        found = self._incomplete.pop(key, None)
        if found is not None:
            self._together -= found[0].size

    def read(self, size: int) -> int:
        """
        Count so many bytes as read; returns the number to tell the member, 0 for not now.
        """
        self._unsaid += size
        if self._unsaid < READ_BYTES:
            return 0
        unsaid, self._unsaid = self._unsaid, 0
        return unsaid
