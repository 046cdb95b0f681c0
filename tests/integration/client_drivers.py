"""
Clients of several languages, driven alike: what a test says is done in Python, in Node.js or in a page.
"""

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from msgnode.client import NOT_HANDLED, AsyncClient, Message, Refused
from msgnode.client.errors import ClientError
from tests.integration.browser import Browser
from tests.integration.pages import PAGES, PageServer
from tests.integration.process import PATIENCE

TOP = Path(__file__).parents[2]
CLIENT = TOP / "msgnode" / "stub" / "client.mjs"
WS = TOP / "tools" / "stub" / "node_modules" / "ws" / "wrapper.mjs"


class CallFailed(Exception):
    """
    What a client's call failed with: `name` of the error, its `code`, `text` and `reason`.
    """

    def __init__(self, name: str, code: int | None, text: str, reason: str) -> None:
        super().__init__(f"{name} {code} {text}")
        self.name, self.code, self.text, self.reason = name, code, text, reason


class Driver(Protocol):
    """
    What performs commands.

    `make` (name, url, options), `call` (name, method, args), `get` (name, property), `took` (name): messages
    that its handlers got; `handle` and `subscribe` (name, address, handler and what it needs, serial);
    `handle` may have `record`, the name of a record.

    {"$record": name, "body": {...}} in the place of a body is a typed value; messages with one have its body
    as `$typed`.
    """

    def perform(self, command: dict[str, Any]) -> dict[str, Any]:
        """
        Returns {"value": ...} or {"error": name, "code": ..., "text": ..., "reason": ...}.
        """

    def stop(self) -> None: ...


class DrivenClient:
    """
    A client of any language.  Options are named as in TypeScript; times are seconds.
    """

    def __init__(self, driver: Driver, url: str, name: str, **options: Any) -> None:
        self._driver = driver
        self._name = name
        self._do("make", url=url, options=options)

    def _do(self, what: str, **given: Any) -> Any:
        result = self._driver.perform({"do": what, "name": self._name, **given})
        if "error" in result:
            raise CallFailed(result["error"], result["code"], result["text"], result["reason"])
        return result["value"]

    def __call__(self, method: str, *args: Any) -> Any:
        return self._do("call", method=method, args=args)

    def __getitem__(self, name: str) -> Any:
        return self._do("get", property=name)

    def handle(self, address: str, handler: str, **given: Any) -> None:
        self._do("handle", address=address, handler=handler, **given)

    def handle_record(self, record: str, handler: str, **given: Any) -> None:
        self._do("handle", address="", record=record, handler=handler, **given)

    def subscribe(self, address: str, handler: str, **given: Any) -> None:
        self._do("subscribe", address=address, handler=handler, **given)

    @property
    def took(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._do("took")
        return found


class NodeDriver:
    """
    Clients in Node.js: by the WebSocket of npm's ws, or by long-polling where there is none.
    """

    def __init__(self, records: Path, websocket: bool) -> None:
        modules = [CLIENT.as_uri(), records.as_uri(), *([WS.as_uri()] if websocket else [])]
        command = ["node", str(PAGES / "client_in_node.mjs"), *modules]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def perform(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"id": 0, **command}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "Node.js has ended"
        result: dict[str, Any] = json.loads(line)
        return result

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)


class PageDriver:
    """
    Clients in a page in Chromium, by the module that the node serves.
    """

    def __init__(self, browser: Browser, pages: PageServer, node: int) -> None:
        where = urlencode({"node": f"http://127.0.0.1:{node}"})
        self._page = browser.page(f"http://127.0.0.1:{pages.port}/client.html?{where}")
        self._page.until("!!globalThis.driver")

    def perform(self, command: dict[str, Any]) -> dict[str, Any]:
        # Texts: as a JavaScript expression or as a value of the debugger, __proto__ is no member.
        told = json.dumps(json.dumps(command))
        result: dict[str, Any] = json.loads(
            self._page.run(f"driver.perform(JSON.parse({told})).then(JSON.stringify)")
        )
        return result

    def stop(self) -> None:
        self._page.close()


class PythonDriver:
    """
    Clients in Python, in an asyncio loop of a thread of their own.
    """

    def __init__(self, classes: dict[str, Any]) -> None:
        self._classes = classes  # of generated records, by the names of the records
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._clients: dict[str, AsyncClient] = {}
        self._took: dict[str, list[dict[str, Any]]] = {}

    def perform(self, command: dict[str, Any]) -> dict[str, Any]:
        do = getattr(self, _METHODS[command.pop("do")])
        return asyncio.run_coroutine_threadsafe(self._tried(do, command), self._loop).result(2 * PATIENCE)

    async def _tried(self, do: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
        try:
            value = do(**given)
            value = await value if asyncio.iscoroutine(value) or isinstance(value, asyncio.Future) else value
        except ClientError as why:
            text = getattr(why, "text", None) or getattr(why, "word", None) or str(why)
            reason = getattr(why, "reason", "")
            return {
                "error": type(why).__name__,
                "code": getattr(why, "code", None),
                "text": text,
                "reason": reason,
            }
        return {"value": _told(value) if isinstance(value, Message) else value}

    async def _make(self, name: str, url: str, options: dict[str, Any]) -> None:
        self._clients[name] = AsyncClient(url, **options)
        self._took[name] = []

    def _call(self, name: str, method: str, args: list[Any]) -> Any:
        options: dict[str, Any] = {}
        if args and isinstance(args[-1], dict) and len(args) > _BODIES.get(method, 0):
            *args, options = args
        args = [self._typed(each) for each in args]
        if "from" in options:
            options["from_"] = options.pop("from")
        return getattr(self._clients[name], method)(*args, **options)

    def _get(self, name: str, property: str) -> Any:
        return getattr(self._clients[name], {"isOpen": "is_open"}.get(property, property))

    def _typed(self, body: Any) -> Any:
        if not isinstance(body, dict) or "$record" not in body:
            return body
        return self._classes[body["$record"]].from_body(body["body"])

    def _handle(
        self, name: str, address: str, handler: str, record: str = "", serial: bool = False, **given: Any
    ) -> None:
        place = self._classes[record] if record else address
        self._clients[name].handle(place, self._recorded(name, handler, given), serial=serial)

    def _subscribe(self, name: str, address: str, handler: str, serial: bool = False, **given: Any) -> Any:
        return self._clients[name].subscribe(address, self._recorded(name, handler, given), serial=serial)

    def _took_by(self, name: str) -> list[dict[str, Any]]:
        return self._took[name]

    def _recorded(self, name: str, kind: str, given: dict[str, Any]) -> Callable[[Message], Any]:
        handler = _HANDLERS[kind]
        if kind in _MADE:
            handler, given = handler(self._clients[name], **given), {}

        def recorded(message: Message) -> Any:
            self._took[name].append(_told(message))
            return handler(message, **given)

        return recorded

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


def _told(message: Message) -> dict[str, Any]:
    """
    The message as JSON, with the body of its record.
    """
    record = message.record
    return message.fields if record is None else {**message.fields, "$typed": record.to_body()}


_METHODS = {
    "make": "_make",
    "call": "_call",
    "get": "_get",
    "handle": "_handle",
    "subscribe": "_subscribe",
    "took": "_took_by",
}
# How many arguments stand before the options of a method.
_BODIES = {"request": 2, "publish": 2, "deliver": 2, "register": 1, "allocate": 1, "find": 1}


def _refuse(message: Message, code: int, text: str) -> None:
    raise Refused(code, text)


def _fail(message: Message) -> None:
    raise RuntimeError("a mistake")


def _hold_and_answer(message: Message, value: Any) -> None:
    message.hold()
    asyncio.get_running_loop().call_later(0.02, message.answer, value)


def _keep(message: Message) -> None:
    message.keep()


_held: list[Message] = []  # else they would be dropped, and answered 503


def _hold(message: Message, seconds: float) -> None:
    _held.append(message.hold(seconds))


def _answer_record(message: Message, body: dict[str, Any]) -> Any:
    request = type(message.record)
    return (request if request.HAS_SAME_ANSWER else request.ANSWER).from_body(body)


def _fill(message: Message, field: str, value: Any) -> None:
    setattr(message.reply, field, value)


def _hold_and_fill(message: Message, field: str, value: Any) -> None:
    def later() -> None:
        _fill(message, field, value)
        message.answer()

    message.hold()
    asyncio.get_running_loop().call_later(0.02, later)


def _increase(message: Message, field: str) -> None:
    setattr(message.record, field, getattr(message.record, field) + 1)


def _busy(client: AsyncClient) -> Callable[[Message], Any]:
    """
    A handler that waits a while for another call of itself, and returns how many calls it saw at once.
    """
    running = most = 0

    async def handler(message: Message) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(20):
            if most == 1:
                await asyncio.sleep(0.02)
        running -= 1
        return most

    return handler


def _ask(client: AsyncClient, to: str) -> Callable[[Message], Any]:
    async def handler(message: Message) -> Any:
        return (await client.request(to, message.body)).body["value"]

    return handler


_MADE = {"busy", "ask"}  # made for a client, with a state of their own
_HANDLERS: dict[str, Callable[..., Any]] = {
    "value": lambda message, value: value,
    "increment": lambda message: message.body["n"] + 1,
    "refuse": _refuse,
    "fail": _fail,
    "not_handled": lambda message: NOT_HANDLED,
    "keep": _keep,
    "hold": _hold,
    "hold_and_answer": _hold_and_answer,
    "forward": lambda message, to: message.forward(to),
    "record": lambda message: None,
    "answer_record": _answer_record,
    "fill": _fill,
    "hold_and_fill": _hold_and_fill,
    "increase": _increase,
    "busy": _busy,
    "ask": _ask,
}
