"""
Handlers of messages, by the record in the body or by the address.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.client.errors import Refused
from msgnode.client.message import NOT_HANDLED, Message
from msgnode.client.records import RecordClass, is_record_class

log = Logger()

EVERYTHING = "*"  # the place of the handler that is asked last
MAX_WAITING = 10_000  # messages that wait for a handler that is serial

Handler = Callable[[Message], Any]
Run = Callable[[Coroutine[Any, Any, Any]], Deferred[Any]]
_NEWS = ("response", "receipt")  # never read as a request


class Handlers:
    """
    The handlers of a client.

    A message is offered to the handler of its record, then to that of its address, else of the nearest prefix
    of it that ends before a `/`, then to that of everything, until one does not return NOT_HANDLED.

    A handler that is no coroutine is never called while another runs.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._by_address: dict[str, Handler] = {}
        self._by_record: dict[str, tuple[RecordClass, Handler]] = {}

    def add(self, places: Iterable[str | RecordClass], handler: Handler, serial: bool = False) -> None:
        if serial:
            handler = _Serial(handler, self._run)
        for place in places:
            if is_record_class(place):
                self._by_record[place.ID] = place, handler
            elif isinstance(place, str):
                self._by_address[place] = handler
            else:
                raise TypeError(f"a handler is for an address or a class of a record, not for {place!r}")

    def remove(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._by_address.pop(address, None)

    def offer(self, message: Message) -> bool:
        """
        Offer a message to its handlers; False if there are none.
        """
        found = list(self._found(message))
        if found:
            self._ask(message, iter(found))
        return bool(found)

    def _found(self, message: Message) -> Iterator[tuple[RecordClass | None, Handler]]:
        record = message.fields.get("record")
        if isinstance(record, str) and message.type.lower() not in _NEWS:
            typed = self._by_record.get(record) or self._by_record.get(record.lower())
            if typed is not None:
                yield typed
        handlers, address = self._by_address, message.to
        while address not in handlers and "/" in address:
            address = address.rpartition("/")[0]
        for place in (address, EVERYTHING):
            if place in handlers:
                yield None, handlers[place]

    def _ask(self, message: Message, asked: Iterator[tuple[RecordClass | None, Handler]]) -> None:
        for record, handler in asked:
            message.record = None
            if record is not None and not message.read_as(record):
                return
            try:
                result = handler(message)
            except Exception:
                message.fail(Failure())
                return
            if isinstance(result, Coroutine):
                result = self._run(result)
            if isinstance(result, Deferred):
                result.addCallbacks(self._settle, message.fail, (message, asked))
                return
            if result is not NOT_HANDLED or message.held:
                message.settle(result)
                return
        message.not_handled()

    def _settle(
        self, result: Any, message: Message, asked: Iterator[tuple[RecordClass | None, Handler]]
    ) -> None:
        if result is NOT_HANDLED and not message.held:
            self._ask(message, asked)
        else:
            message.settle(result)


class _Serial:
    """
    A handler whose next call begins when what the last one returned is done.
    """

    def __init__(self, handler: Handler, run: Run) -> None:
        self._handler = handler
        self._run = run
        self._waiting: deque[tuple[Message, Deferred[Any]]] = deque()
        self._is_busy = self._is_looking = False

    def __call__(self, message: Message) -> Deferred[Any]:
        if len(self._waiting) >= MAX_WAITING:
            log.warn(
                "{number} messages wait for a handler: {type} is refused",
                number=MAX_WAITING,
                type=message.type,
            )
            raise Refused(503, f"{MAX_WAITING} messages wait for this handler", {"reason": "overflow"})
        done: Deferred[Any] = Deferred()
        self._waiting.append((message, done))
        self._look()
        return done

    def _look(self) -> None:
        if self._is_looking:
            return  # the loop below goes on: calls do not nest
        self._is_looking = True
        while self._waiting and not self._is_busy:
            message, done = self._waiting.popleft()
            self._is_busy = True
            maybeDeferred(self._turn, message).addBoth(self._ended, done)
        self._is_looking = False

    def _turn(self, message: Message) -> Any:
        result = self._handler(message)
        return self._run(result) if isinstance(result, Coroutine) else result

    def _ended(self, result: Any, done: Deferred[Any]) -> None:
        self._is_busy = False
        done.callback(result)
        self._look()
