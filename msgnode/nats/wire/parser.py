"""
The parser of what a server sends: INFO, MSG, HMSG, PING, PONG, +OK and -ERR.

It does no I/O. Bytes of an incomplete command are kept in one bytearray until enough have come, so each byte
is copied a bounded number of times, however small the reads are. (Source: NATS client protocol.)
"""

from typing import NoReturn, Protocol

from msgnode.nats.errors import ProtocolError

MAX_LINE_BYTES = 64 * 1024  # of a control line, without CR LF; INFO of a large cluster is the longest
DEFAULT_MAX_PAYLOAD = 1024 * 1024  # bytes, of nats-server
_MAX_SIZE_DIGITS = 10
_WITH_PAYLOAD = (b"MSG", b"HMSG")
_SHOWN_BYTES = 40  # of a wrong line, in the text of the error


class Receiver(Protocol):
    """
    The side that gets commands as they are complete.
    """

    def message_received(
        self, subject: bytes, sid: bytes, reply: bytes, headers: bytes, payload: bytes
    ) -> None:
        """
        MSG or HMSG: `sid` is the subscription; `reply` and `headers` are empty if there are none.

        The parser looks the method up once for each call of `feed`.
        """

    def info_received(self, json: bytes) -> None: ...
    def ping_received(self) -> None: ...
    def pong_received(self) -> None: ...
    def ok_received(self) -> None: ...

    def error_received(self, text: str) -> None:
        """
        -ERR, without the quotes around the text.
        """


class Parser:
    """
    An incremental parser. `max_payload` bounds the bytes of a message, headers included; it may be changed at
    any time.

    After a ProtocolError every further call raises it again.
    """

    def __init__(self, receiver: Receiver, max_payload: int = DEFAULT_MAX_PAYLOAD) -> None:
        self.max_payload = max_payload
        self._receiver = receiver
        self._held = bytearray()
        self._wanted = 0  # bytes that must be held before it can go on; 0: until the end of a line
        self._searched = 0  # bytes held that have no end of a line in them
        self._error: ProtocolError | None = None

    @property
    def held_bytes(self) -> int:
        """
        The bytes that wait for the rest of a command.
        """
        return len(self._held)

    def feed(self, data: bytes) -> None:
        """
        Take bytes in, and pass on each command that is complete. ProtocolError if they cannot be one.
        """
        if self._error is not None:
            raise self._error
        try:
            self._feed(data)
        except ProtocolError as why:
            self._error = why
            self._held.clear()
            raise

    def _feed(self, data: bytes) -> None:
        held = self._held
        if held:
            held += data
            if not self._is_enough():
                return
            data = bytes(held)
            held.clear()
        rest = self._parse(data)
        if rest < len(data):
            held += data[rest:] if rest else data

    def _is_enough(self) -> bool:
        held = self._held
        if self._wanted:
            return len(held) >= self._wanted
        if held.find(b"\r\n", self._searched) >= 0:
            return True
        self._check_incomplete_line(len(held))
        return False

    def _check_incomplete_line(self, size: int) -> None:
        """
        Note that so many bytes have no end of a line in them. The last may be its CR.
        """
        if size > MAX_LINE_BYTES + 1:
            self._too_long()
        self._wanted, self._searched = 0, max(0, size - 1)

    def _parse(self, data: bytes) -> int:
        """
        Pass on all complete commands; the number of bytes that they had.

        The common MSG is read in this loop, because a call for each message would be felt.
        """
        start, length = 0, len(data)
        find, message = data.find, self._receiver.message_received
        while start < length:
            end = find(b"\r\n", start)
            if end < 0:
                self._check_incomplete_line(length - start)
                break
            if end - start > MAX_LINE_BYTES:
                self._too_long()
            headers = 0
            if data[start : start + 4] == b"MSG ":
                words = data[start + 4 : end].split()
                if len(words) == 3:
                    subject, sid, size = words
                    reply = b""
                elif len(words) == 4:
                    subject, sid, reply, size = words
                else:
                    self._wrong(data[start:end], "expected 'MSG subject sid [reply] size'")
                whole = self._size(size)
            elif (verb := _verb(data[start:end])) in _WITH_PAYLOAD:
                subject, sid, reply, headers, whole = self._message_line(verb, data[start:end])
            else:
                self._line(verb, data[start:end])
                start = end + 2
                continue
            first = end + 2
            last = first + whole
            if last + 2 > length:
                self._wanted = last + 2 - start
                break
            if data[last : last + 2] != b"\r\n":
                self._unterminated(whole, data[last : last + 2])
            body = first + headers
            message(subject, sid, reply, data[first:body], data[body:last])
            start = last + 2
        return start

    def _message_line(self, verb: bytes, line: bytes) -> tuple[bytes, bytes, bytes, int, int]:
        """
        Subject, sid, reply, bytes of headers and bytes in all, of a line that the loop does not read itself.
        """
        _, *words = line.split()
        headers = 0
        if verb == b"HMSG" and len(words) in (4, 5):
            headers = self._size(words.pop(-2))
        elif verb == b"HMSG" or len(words) not in (3, 4):
            self._wrong(line, "expected 'MSG subject sid [reply] size' or HMSG with two sizes")
        subject, sid, *reply, size = words
        whole = self._size(size)
        if headers > whole:
            self._wrong(line, "expected headers within the message")
        return subject, sid, reply[0] if reply else b"", headers, whole

    def _size(self, digits: bytes) -> int:
        if not digits.isdigit() or len(digits) > _MAX_SIZE_DIGITS:
            self._wrong(digits, "expected a size in decimal digits")
        size = int(digits)
        if size > self.max_payload:
            raise ProtocolError(
                f"expected a message of at most {self.max_payload} bytes, found one of {size}"
            )
        return size

    def _line(self, verb: bytes, line: bytes) -> None:
        """
        A command without a payload.
        """
        rest = line.lstrip()[len(verb) :].strip()
        if verb == b"PING":
            self._receiver.ping_received()
        elif verb == b"PONG":
            self._receiver.pong_received()
        elif verb == b"+OK":
            self._receiver.ok_received()
        elif verb == b"INFO":
            self._receiver.info_received(rest)
        elif verb == b"-ERR":
            self._receiver.error_received(str(rest, "utf-8", "replace").strip("'"))
        else:
            self._wrong(line, "expected INFO, MSG, HMSG, PING, PONG, +OK or -ERR")

    def _unterminated(self, size: int, found: bytes) -> NoReturn:
        raise ProtocolError(f"expected CR LF after {size} bytes of payload, found {found!r}")

    def _too_long(self) -> NoReturn:
        raise ProtocolError(f"expected a line of at most {MAX_LINE_BYTES} bytes, found a longer one")

    def _wrong(self, line: bytes, expected: str) -> NoReturn:
        shown = line if len(line) <= _SHOWN_BYTES else line[:_SHOWN_BYTES] + b"..."
        raise ProtocolError(f"{expected}, found {shown!r}")


def _verb(line: bytes) -> bytes:
    """
    The first word in upper case, or nothing.
    """
    words = line.split(None, 1)
    return words[0].upper() if words else b""
