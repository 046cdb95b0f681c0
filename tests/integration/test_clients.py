"""
What a client does at a real node, in each language that there is a client for.
"""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integration.browser import CHROMIUM, Browser
from tests.integration.client_drivers import (
    WS,
    CallFailed,
    DrivenClient,
    Driver,
    NodeDriver,
    PageDriver,
    PythonDriver,
)
from tests.integration.pages import PageServer
from tests.integration.process import PATIENCE, NodeProcess
from tests.support.examples import TOP
from tests.support.fuzz import TIMES
from tests.support.generated import DEFINITIONS, TSC, check_types, python_classes, typescript_modules
from tests.support.made_records import bodies
from tests.support.records_case import canonical, needs

DOMAIN = "domain://msg-node.localhost"
MAKING: dict[str, Callable[[Path], Driver]] = {
    "python": lambda place: PythonDriver(python_classes(place)),
    "node.js, websocket": lambda place: NodeDriver(typescript_modules(place), True),
    "node.js, polling": lambda place: NodeDriver(typescript_modules(place), False),
}
THERMOMETER = "GET_TEMPERATURE"
ID = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12"
EVERYTHING = next(record for record in DEFINITIONS.records if record.name == "EVERYTHING")
numbers = count(1)


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    process = NodeProcess()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture(scope="module", params=[*MAKING, "chromium"])
def driver(
    request: pytest.FixtureRequest, node: NodeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    place = tmp_path_factory.mktemp("records")
    if request.param != "python" and not (_node_version() >= 20 and WS.exists() and TSC.exists()):
        pytest.skip("needs Node.js 20, and npm install in tools/stub")
    if request.param == "chromium":
        if CHROMIUM is None:
            pytest.skip("needs chromium")
        browser, pages = Browser(), PageServer(typescript_modules(place).parent)
        yield PageDriver(browser, pages, node.ports["web"])
        browser.stop()
        pages.stop()
        return
    driver = MAKING[request.param](place)
    yield driver
    driver.stop()


def _node_version() -> int:
    if shutil.which("node") is None:
        return 0
    said = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return int(said.lstrip("v").partition(".")[0] or 0)


class World:
    """
    A node, and clients at it with names of their own.
    """

    def __init__(self, driver: Driver, node: NodeProcess) -> None:
        self._driver = driver
        self.url = f"ws://127.0.0.1:{node.ports['web']}/ws"
        self._number = next(numbers)
        self._made: list[DrivenClient] = []

    def client(self, name: str, connect: bool = True, **options: object) -> DrivenClient:
        """
        A client `runtime://localhost/<name>-<number>`, with the session open.
        """
        runtime = f"runtime://localhost/{name}-{self._number}"
        unique = f"{name}-{self._number}-{len(self._made)}"
        made = DrivenClient(self._driver, self.url, unique, **{"runtime": runtime, **options})
        if connect:
            made("connect")
        self._made.append(made)
        return made

    def address(self, name: str) -> str:
        return f"hyperty://localhost/{name}-{self._number}"

    def close(self) -> None:
        for client in self._made:
            client("close")


@pytest.fixture
def world(driver: Driver, node: NodeProcess) -> Iterator[World]:
    world = World(driver, node)
    yield world
    world.close()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def test_a_request_gets_the_answer_of_its_handler(world: World) -> None:
    """
    A request gets what the handler of its address, or of the nearest address above it, returns.
    """
    lamp, user = world.client("lamp"), world.client("user")
    lamp.subscribe(world.address("lamp"), "increment")
    lamp.handle(lamp["runtime"], "value", value="at the runtime")

    assert {"code": 200, "value": 2} == user("request", world.address("lamp"), {"n": 1})["body"]
    assert "at the runtime" == user("request", f"{lamp['runtime']}/some/part")["body"]["value"]


@pytest.mark.parametrize(
    "handler, given, code, text",
    [
        ("refuse", {"code": 403, "text": "not yours"}, 403, "not yours"),
        ("fail", {}, 500, "the recipient failed over this message"),
        ("not_handled", {}, 501, "not processed"),
        ("hold", {"seconds": 0.2}, 504, "not answered within 0.2 s"),
    ],
)
def test_a_request_that_is_not_done_is_refused_with_code_and_text(
    world: World, handler: str, given: dict[str, object], code: int, text: str
) -> None:
    """
    What a handler refuses, fails over, does not handle or holds too long comes back as an error.
    """
    lamp, user = world.client("lamp"), world.client("user")
    lamp.subscribe(world.address("lamp"), handler, **given)

    with pytest.raises(CallFailed) as failed:
        user("request", world.address("lamp"))

    assert ("Refused", code, text) == (failed.value.name, failed.value.code, failed.value.text)


def test_a_request_that_nobody_handles_is_not_found(world: World) -> None:
    """
    At a runtime without a handler the sender gets 404.
    """
    lamp, user = world.client("lamp"), world.client("user")

    with pytest.raises(CallFailed) as failed:
        user("request", f"{lamp['runtime']}/x")

    assert ("Refused", 404) == (failed.value.name, failed.value.code)


def test_a_request_without_an_answer_times_out(world: World) -> None:
    """
    A handler that keeps the message answers nothing.
    """
    lamp, user = world.client("lamp"), world.client("user")
    lamp.subscribe(world.address("lamp"), "keep")

    with pytest.raises(CallFailed) as failed:
        user("request", world.address("lamp"), None, {"timeout": 0.3})

    assert "TimedOut" == failed.value.name


def test_a_request_that_was_held_is_answered_later(world: World) -> None:
    """
    A handler may hold a request, and answer it when it can.
    """
    lamp, user = world.client("lamp"), world.client("user")
    lamp.subscribe(world.address("lamp"), "hold_and_answer", value="at last")

    assert "at last" == user("request", world.address("lamp"))["body"]["value"]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_request_may_be_forwarded(world: World, allowed: bool) -> None:
    """
    If its sender allows it, the third client sees the sender; else it sees the client that asks for it.
    """
    first, second, third = world.client("first"), world.client("second"), world.client("third")
    second.subscribe(world.address("second"), "forward", to=world.address("third"))
    third.subscribe(world.address("third"), "value", value="from the third")

    reply = first("request", world.address("second"), {"n": 1}, {"forward": True} if allowed else {})

    assert "from the third" == reply["body"]["value"]
    assert [(first if allowed else second)["runtime"]] == [message["from"] for message in third.took]


def test_publications_arrive_once_and_in_order(world: World) -> None:
    """
    Whoever subscribed gets each publication once, in the order of sending, until it unsubscribes.
    """
    reporter, observer = world.client("reporter"), world.client("observer")
    news = f"comm://localhost/{id(world)}/changes"
    observer.subscribe(news, "record")

    for number in range(200):
        reporter("publish", news, {"value": number})
    reporter("flushed")
    wait_for(lambda: len(observer.took) >= 200)
    observer("unsubscribe", news)
    reporter("publish", news, {"value": "too late"})
    receipt = reporter("deliver", news, {"value": "too late"})

    assert list(range(200)) == [message["body"]["value"] for message in observer.took]
    assert 404 == receipt["body"]["code"]


def test_a_delivery_is_told_by_its_receipt(world: World) -> None:
    """
    The receipt says that the recipient has the message.
    """
    reporter, observer = world.client("reporter"), world.client("observer")
    observer.subscribe(world.address("observer"), "record")

    receipt = reporter("deliver", world.address("observer"), {"value": 1})

    assert (200, 1) == (receipt["body"]["code"], receipt["body"]["recipients"])


def test_addresses_are_allocated_and_freed(world: World) -> None:
    """
    Allocated addresses are bound to the session until they are given back.
    """
    holder, user = world.client("holder"), world.client("user")

    first, second = holder("allocate", 2, {"scheme": "hyperty"})
    holder.handle(first, "value", value=1)
    answer = user("request", first)["body"]["value"]
    holder("free", [first, second])

    assert 1 == answer
    assert 404 == user("deliver", first)["body"]["code"]


def test_a_session_goes_on_with_its_token(world: World) -> None:
    """
    A client that closes without ending its session leaves it to the next, with what came meanwhile.
    """
    news = f"comm://localhost/{id(world)}/changes"
    first, reporter = world.client("observer"), world.client("reporter")
    first.subscribe(news, "record")
    token = first["token"]
    first("close", {"end": False})
    reporter("publish", news, {"value": 1})
    reporter("flushed")

    second = world.client("observer", connect=False, token=token)
    second.handle(news, "record")
    second("connect")
    wait_for(lambda: second.took)

    assert [1] == [message["body"]["value"] for message in second.took]


def test_a_client_stops_when_another_takes_its_name(world: World) -> None:
    """
    The earlier client of one runtime is told so, and does not come back.
    """
    earlier = world.client("name")
    world.client("name")

    wait_for(lambda: not earlier["isOpen"])
    with pytest.raises(CallFailed) as failed:
        earlier("request", "hyperty://localhost/any")

    assert ("Closed", 4409) == (failed.value.name, failed.value.code)


def test_a_hyperty_is_registered_and_found(world: World) -> None:
    """
    What one registers another finds; what is not there is 404.
    """
    one, other = world.client("one"), world.client("other")
    address = world.address("registered")

    one("register", address, {"user": f"user://localhost/{id(world)}", "expires": 60})

    assert address in str(other("find", address))
    with pytest.raises(CallFailed) as failed:
        other("find", "user://localhost/nobody")
    assert 404 == failed.value.code


def typed(record: str, body: dict[str, object]) -> dict[str, object]:
    """
    A typed value in the place of a body.
    """
    return {"$record": record, "body": body}


def test_a_typed_request_has_a_typed_answer(world: World) -> None:
    """
    The handler of the record gets the request, and the asker the answer, with all values of all types exact;
    both messages name the record.
    """
    lamp, user = world.client("lamp"), world.client("user")
    place = {"LATITUDE": 1.5, "LONGITUDE": -2.25}
    request = {"ROOM": "hall", "UNIT": "LATER", "WHERE": place, "CLASS": "AAEC", "BIG": str(2**63 - 1)}
    request |= {"RATIO": 1.5, "STATES": ["ON", "OTHER"], "NAME": None, "NEWER": [1, {"a": None}]}
    answer = {"TEMPERATURE": 21.5, "MEASURED_AT": "2026-11-18T10:00:00Z", "SERIAL": str(-(2**63))}
    answer |= {"HISTORY": [1.5, -2.5], "LABELS": {"__proto__": "x"}, "ROUTE": [place], "NEWER": "kept"}
    answer |= {"OWNER": ID, "DETAILS": {"a": [None]}, "ANYTHING": "any"}
    lamp.subscribe(world.address("lamp"), "fail")
    lamp.handle_record(THERMOMETER, "answer_record", body=answer)

    reply = user("request", world.address("lamp"), typed(THERMOMETER, request))
    [took] = lamp.took

    assert (request, ID) == (took["$typed"], took["record"])
    assert (answer, ID) == (reply["$typed"], reply["record"])


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # it is used by the clients meanwhile
@settings(
    max_examples=10 * TIMES, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None
)
@given(st.data())
def test_made_records_cross_a_node_unchanged(
    pair: tuple[DrivenClient, DrivenClient, str], data: st.DataObject
) -> None:
    """
    What Python sends arrives in each language as it was, and what goes back is the same: values of each type.
    """
    python, other, address = pair
    body = data.draw(bodies(DEFINITIONS, EVERYTHING))
    body.pop("code", None)

    reply = python("request", address, typed("EVERYTHING", body))
    took = other.took[-1]

    for found in (took["$typed"], reply["$typed"]):
        assert canonical(DEFINITIONS, EVERYTHING, body) == canonical(DEFINITIONS, EVERYTHING, found)


@pytest.fixture
def pair(
    driver: Driver, node: NodeProcess, tmp_path: Path
) -> Iterator[tuple[DrivenClient, DrivenClient, str]]:
    """
    A client in Python, and one of the driver's, which returns records to it, and its address.
    """
    python = PythonDriver(python_classes(tmp_path))
    here, there = World(python, node), World(driver, node)
    client, address = there.client("other"), there.address("other")
    client.subscribe(address, "fail")
    client.handle_record("EVERYTHING", "record")
    yield here.client("python"), client, address
    there.close()
    here.close()
    python.stop()


def test_a_record_goes_back_as_its_handler_left_it(world: World) -> None:
    """
    A handler that returns nothing answers with the slots that it filled in and those of both directions;
    where request and answer have the same slots, with the record itself; where answers have none, with 200.
    """
    lamp, user = world.client("lamp"), world.client("user")
    place = {"LATITUDE": 1.5, "LONGITUDE": -2.25}
    added = {"REMOTE_NODE": "mn://b.example/n1", "TYPE": "SERVER"}
    lamp.subscribe(world.address("lamp"), "fail")
    lamp.handle_record(THERMOMETER, "fill", field="temperature", value=20.5)
    lamp.handle_record("POSITION", "increase", field="latitude")
    lamp.handle_record("NOTIFY_REMOTE_NODE_ADDED", "record")

    def ask(name: str, body: dict[str, object]) -> dict[str, Any]:
        reply: dict[str, Any] = user("request", world.address("lamp"), typed(name, body))
        return reply

    assert {"TEMPERATURE": 20.5, "WHERE": place} == ask(THERMOMETER, {"ROOM": "hall", "WHERE": place})[
        "$typed"
    ]
    assert {"LATITUDE": 2.5, "LONGITUDE": -2.25, "LATER": 1} == ask("POSITION", {**place, "LATER": 1})[
        "$typed"
    ]
    assert {"code": 200} == ask("NOTIFY_REMOTE_NODE_ADDED", added)["body"]


def test_a_typed_request_may_be_held(world: World) -> None:
    """
    A handler holds it, fills the answer in, and sends it later.
    """
    lamp, user = world.client("lamp"), world.client("user")
    lamp.subscribe(world.address("lamp"), "fail")
    lamp.handle_record(THERMOMETER, "hold_and_fill", field="temperature", value=20.5)

    reply = user("request", world.address("lamp"), typed(THERMOMETER, {"ROOM": "hall"}))

    assert {"TEMPERATURE": 20.5} == reply["$typed"]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_typed_request_may_be_forwarded(world: World, allowed: bool) -> None:
    """
    The third gets the record, and the sender a typed answer.
    """
    first, second, third = world.client("first"), world.client("second"), world.client("third")
    second.subscribe(world.address("second"), "fail")
    second.handle_record(THERMOMETER, "forward", to=world.address("third"))
    third.subscribe(world.address("third"), "fail")
    third.handle_record(THERMOMETER, "fill", field="temperature", value=1.5)

    header = {"forward": True} if allowed else {}
    reply = first("request", world.address("second"), typed(THERMOMETER, {"ROOM": "hall"}), header)

    assert ({"TEMPERATURE": 1.5}, ID) == (reply["$typed"], reply["record"])
    assert [{"ROOM": "hall"}] == [message["$typed"] for message in third.took]


def test_a_wrong_body_is_refused_before_its_handler(world: World) -> None:
    """
    The sender gets 400 with the name of the slot, and the handler nothing.
    """
    lamp, user = world.client("lamp"), world.client("user")
    lamp.subscribe(world.address("lamp"), "fail")
    lamp.handle_record(THERMOMETER, "fill", field="temperature", value=1.5)

    with pytest.raises(CallFailed) as failed:
        user("request", world.address("lamp"), {"ROOM": 5}, {"record": ID})

    assert ("Refused", 400) == (failed.value.name, failed.value.code)
    assert "this is no GET_TEMPERATURE: ROOM: expected STRING, found 5" == failed.value.text
    assert [] == lamp.took


def test_an_answer_that_does_not_fit_is_refused_to_the_asker(world: World) -> None:
    """
    An answer of a recipient without types is read as the record, or is 502 with the reason `record`.
    """
    lamp, user = world.client("lamp"), world.client("user")
    lamp.subscribe(f"{world.address('lamp')}/wrong", "value", value={"TEMPERATURE": "warm"})
    lamp.subscribe(f"{world.address('lamp')}/right", "value", value={"TEMPERATURE": 3})

    right = user("request", f"{world.address('lamp')}/right", typed(THERMOMETER, {"ROOM": "hall"}))
    with pytest.raises(CallFailed) as failed:
        user("request", f"{world.address('lamp')}/wrong", typed(THERMOMETER, {"ROOM": "hall"}))

    assert {"TEMPERATURE": 3} == right["$typed"]
    assert ("Refused", 502, "record") == (failed.value.name, failed.value.code, failed.value.reason)
    said = "the answer is ill-typed: this is no GET_TEMPERATURE: TEMPERATURE: expected DOUBLE, found "
    assert failed.value.text[:-6] == said  # and 'warm', or "warm"


def test_a_handler_whose_answer_does_not_fit_has_failed(world: World) -> None:
    """
    A mandatory slot that the handler did not fill in is its mistake: the sender gets 500.
    """
    lamp, user = world.client("lamp"), world.client("user")
    lamp.subscribe(world.address("lamp"), "fail")
    lamp.handle_record(THERMOMETER, "record")

    with pytest.raises(CallFailed) as failed:
        user("request", world.address("lamp"), typed(THERMOMETER, {"ROOM": "hall"}))

    assert 500 == failed.value.code


def test_handlers_are_asked_by_record_by_address_and_last(world: World) -> None:
    """
    A handler that does not handle a message leaves it to the next, and the last is that of everything.
    """
    lamp, user = world.client("lamp"), world.client("user")
    lamp.handle("*", "value", value="last")
    lamp.subscribe(world.address("lamp"), "not_handled")
    lamp.handle_record("POSITION", "not_handled")

    place = {"LATITUDE": 1.5, "LONGITUDE": -2.25}
    reply = user("request", world.address("lamp"), {**place}, {"record": EVERYTHING.slots[-1].record})

    assert "last" == reply["body"]["value"]
    assert [True, False, False] == ["$typed" in message for message in lamp.took]


def test_typed_publications_are_read(world: World) -> None:
    """
    `publish` and `deliver` take records, and nobody answers.
    """
    reporter, observer = world.client("reporter"), world.client("observer")
    observer.subscribe(world.address("observer"), "fail")
    observer.handle_record(THERMOMETER, "record")

    reporter("publish", world.address("observer"), typed(THERMOMETER, {"ROOM": "a"}))
    receipt = reporter("deliver", world.address("observer"), typed(THERMOMETER, {"ROOM": "b"}))

    assert [{"ROOM": "a"}, {"ROOM": "b"}] == [message["$typed"] for message in observer.took]
    assert 200 == receipt["body"]["code"]


@pytest.mark.parametrize("serial", [True, False])
def test_a_serial_handler_has_one_message_at_a_time(world: World, serial: bool) -> None:
    """
    A handler that waits for something has other messages meanwhile, unless it is serial.
    """
    lamp, front = world.client("lamp"), world.client("front")
    lamp.subscribe(world.address("lamp"), "busy", serial=serial)
    front.handle(front["runtime"], "record")

    for number in range(4):
        front("publish", world.address("lamp"), {"n": number}, {"type": "read"})
    wait_for(lambda: len(front.took) == 4)

    most = max(message["body"]["value"] for message in front.took)
    assert (most == 1) is serial


def test_an_answer_does_not_queue_behind_a_handler(world: World) -> None:
    """
    A serial handler that asks another gets the answer, while messages wait for it.
    """
    lamp, bulb, front = world.client("lamp"), world.client("bulb"), world.client("front")
    bulb.subscribe(world.address("bulb"), "increment")
    lamp.subscribe(world.address("lamp"), "ask", to=world.address("bulb"), serial=True)
    front.handle(front["runtime"], "record")

    for number in range(4):
        front("publish", world.address("lamp"), {"n": number}, {"type": "read"})
    wait_for(lambda: len(front.took) == 4)

    assert [1, 2, 3, 4] == [message["body"]["value"] for message in front.took]


@needs("node", TSC)
def test_types_are_inferred_from_records(tmp_path: Path) -> None:
    """
    A program in TypeScript needs no annotations, and one that uses a slot wrongly does not compile.
    """
    typescript_modules(tmp_path)

    check_types(tmp_path, TOP / "tests/stub/record_types.ts")


def test_connecting_to_nobody_fails(driver: Driver) -> None:
    """
    Where no node listens, connecting fails; the client does not keep trying.
    """
    client = DrivenClient(driver, "ws://127.0.0.1:1/ws", f"nobody-{next(numbers)}")

    with pytest.raises(CallFailed) as failed:
        client("connect")

    assert "CannotConnect" == failed.value.name


def test_a_node_without_names_gives_one(world: World) -> None:
    """
    A client without a runtime gets a name by the node.
    """
    client = world.client("", runtime="")

    assert client["runtime"].startswith("runtime://localhost/anonymous-")
    client("subscribe", world.address("anonymous"))


def test_a_killed_node_loses_and_doubles_no_message(driver: Driver, tmp_path: Path) -> None:
    """
    A node is killed under a sender and a receiver that go on: each message arrives once, in order.
    """
    node = NodeProcess()
    world = World(driver, node)
    news = "comm://localhost/o/changes"
    sender, receiver = world.client("sender"), world.client("receiver")
    receiver.subscribe(news, "record")
    config = tmp_path / "msgnode.toml"
    where = {kind: f'"tcp:{port}:interface=127.0.0.1"' for kind, port in node.ports.items()}
    config.write_text(f"web = [{where['web']}]\nlines = []\nadmin.listen = {where['admin']}\n")

    for number in range(300):
        sender("publish", news, {"value": number})
        if number == 150:
            node.stop(signal.SIGKILL)
            node = NodeProcess(
                "--config", str(config), state=str(node.state), traffic=str(node.traffic), listeners=2
            )
    sender("flushed")
    wait_for(lambda: len(receiver.took) >= 300)
    world.close()
    node.stop(signal.SIGKILL)

    assert list(range(300)) == [message["body"]["value"] for message in receiver.took]
