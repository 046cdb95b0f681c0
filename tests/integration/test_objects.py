"""
Objects with a history at a real node: nothing that an observer has seen is missing after a kill.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clustered import DOMAIN, until
from tests.integration.process import PATIENCE, Lines, NodeProcess, fetched
from tests.integration.test_cluster_faults import members

SM = "domain://msg-node.localhost/sm"
OBJECT = "comm://localhost/rooms/1"
CHANGES, HISTORY = f"{OBJECT}/changes", f"{OBJECT}/history"
COUNT = 1500
LONG = 1500  # changes of 10 kB: more than the sockets between a node and an observer hold

Message = dict[str, Any]


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], NodeProcess]:
    settings = '[objects]\nkeep = ["comm://localhost/rooms/*"]\n' + getattr(request, "param", "")
    anywhere = 'web = ["tcp:0:interface=127.0.0.1"]\nlines = ["tcp:0:interface=127.0.0.1"]\n'
    admin = '[admin]\nlisten = "tcp:0:interface=127.0.0.1"\n'
    (tmp_path / "msgnode.toml").write_text(anywhere + settings + admin)

    def begin() -> NodeProcess:
        return NodeProcess("--config", str(tmp_path / "msgnode.toml"), state=str(tmp_path / "state"))

    return begin


def update(value: int, id: int = 3) -> Message:
    return {"id": id, "type": "update", "from": OBJECT, "to": CHANGES, "body": {"value": value}}


def subscribe(client: Lines, name: str, **more: Any) -> Message:
    body = {"resources": [CHANGES], **more}
    message = {"id": 2, "type": "subscribe", "from": f"runtime://localhost/{name}/sm", "to": SM, "body": body}
    return client.ask(message)


def read(client: Lines, **body: Any) -> Any:
    answer = client.ask(
        {"id": 4, "type": "read", "from": "runtime://localhost/reader", "to": HISTORY, "body": body}
    )
    assert answer["body"]["code"] == 200, answer
    return answer["body"]["value"]


def all_changes(client: Lines) -> list[Message]:
    found, page = [], read(client, limit=1000)
    while True:
        found += page.get("changes", [])
        if not page.get("next"):
            return found
        page = read(client, **{"from": page["next"], "limit": 1000})


@pytest.mark.parametrize("start", ["", "[performance]\nnative = false\n"], indirect=True)
def test_nothing_that_was_seen_is_missing(start: Callable[[], NodeProcess]) -> None:
    """
    A node is killed while it publishes: what an observer has seen is in the history afterwards, each version
    once; an observer that was away gets it in order, then what comes.
    """
    node = start()
    reporter, observer = (
        Lines(node.ports["line"], f"runtime://localhost/{name}") for name in ("reporter", "observer")
    )
    subscribe(observer, "observer")
    sent = b"".join(json.dumps(update(number)).encode() + b"\n" for number in range(1, COUNT + 1))
    reporter.socket.sendall(sent)
    seen = [observer.receive() for _ in range(COUNT // 2)]
    carried = fetched(node, "admin", "/metrics")
    node.stop(signal.SIGKILL)
    while (message := observer.receive()) is not None:
        seen.append(message)

    node = start()
    reader = Lines(node.ports["line"], "runtime://localhost/reader")
    kept = all_changes(reader)

    assert [message["version"] for message in seen if message] == list(range(1, len(seen) + 1))
    assert [change["version"] for change in kept] == list(range(1, len(kept) + 1))
    assert [change["message"]["body"]["value"] for change in kept] == list(range(1, len(kept) + 1))
    assert len(kept) >= len(seen)
    assert read(reader, at=500)["value"] == 500
    by_flow = float(carried.split("\nmsgnode_messages_by_flow_total ")[1].split()[0])
    is_native = json.loads(fetched(node, "admin", "/live"))["data_plane"] == "native"
    assert (by_flow > COUNT / 4) == is_native

    back = Lines(node.ports["line"], "runtime://localhost/back")
    answer = subscribe(back, "back", since=10)
    reader.send(update(0))
    missed = [back.receive() for _ in range(len(kept) - 10 + 1)]
    assert answer["body"] == {"code": 200, "version": len(kept)}
    assert [each["version"] for each in missed if each] == list(range(11, len(kept) + 2))
    node.stop()


def publish_long(client: Lines, object: str, number: int) -> None:
    """
    Publish so many changes of 10 kB, numbered from 1.
    """
    for value in range(1, number + 1):
        body = {"value": value, "more": "x" * 10_000}
        client.send({"id": value, "type": "update", "from": object, "to": f"{object}/changes", "body": body})


def versions_until(client: Lines, last: int) -> list[int]:
    """
    The versions that come, up to this one.
    """
    found: list[int] = []
    while not found or found[-1] < last:
        message = client.receive()
        assert message is not None, found[-3:]
        if "version" in message:
            found.append(message["version"])
    return found


def test_killed_while_an_observer_catches_up(start: Callable[[], NodeProcess]) -> None:
    """
    The node is killed while an observer catches up: when it is back, it asks since the last version that it
    has, and gets the rest, each once.
    """
    node = start()
    reporter = Lines(node.ports["line"], "runtime://localhost/reporter")
    publish_long(reporter, OBJECT, LONG)
    assert read(reporter, limit=1)["version"] == LONG
    observer = Lines(node.ports["line"], "runtime://localhost/observer")
    assert subscribe(observer, "observer", since=0)["body"] == {"code": 200, "version": LONG}
    seen = versions_until(observer, 100)
    node.stop(signal.SIGKILL)
    while True:
        line = observer.receive_line()
        if not line.endswith(b"\n"):
            break
        seen.append(json.loads(line)["version"])
    assert seen[-1] < LONG

    node = start()
    back = Lines(node.ports["line"])
    name = f"runtime://localhost/observer/{observer.token}"
    opened = {"id": 1, "type": "re-open", "from": name, "to": "mn:/session"}
    assert back.ask(opened)["body"]["code"] == 200
    assert subscribe(back, "observer", since=seen[-1])["body"] == {"code": 200, "version": LONG}
    reporter = Lines(node.ports["line"], "runtime://localhost/reporter")
    publish_long(reporter, OBJECT, 1)
    seen += versions_until(back, LONG + 1)

    assert seen == list(range(1, LONG + 2))
    node.stop()


def test_keeper_killed_while_an_observer_catches_up() -> None:
    """
    The member that keeps an object is killed while an observer at another one catches up: the subscription
    goes on when it is back, without a gap and without a double.
    """
    more = f'members = ["n1", "n2"]\n[objects]\nkeep = ["comm://{DOMAIN}/rooms/*"]\n'
    with members(more=more) as (first, second):
        reporter, observer = first.client("reporter"), first.client("observer")
        room = next(
            room
            for room in (f"comm://{DOMAIN}/rooms/{number}" for number in range(30))
            if kept_by(second, reporter, room)
        )
        publish_long(reporter, room, LONG - 1)
        last = written(second, reporter, room)
        body = {"resources": [f"{room}/changes"], "since": 0}
        manager, own = f"domain://msg-node.{DOMAIN}/sm", f"runtime://{DOMAIN}/observer/sm"
        observer.send({"id": 2, "type": "subscribe", "from": own, "to": manager, "body": body})
        answer = observer.receive()
        assert answer is not None and answer["body"] == {"code": 200, "version": last}
        second.kill()
        second.start()
        seen = versions_until(observer, last)
        until(lambda: list(first.members().values()) == ["up"], PATIENCE)
        publish_long(reporter, room, 1)
        seen += versions_until(observer, last + 1)

    assert seen == list(range(last - LONG + 1, last + 2))


def history_of(reader: Lines, room: str, **body: Any) -> Message:
    """
    The body of the answer to a read of this history.
    """
    own = f"runtime://{DOMAIN}/reporter"
    found = reader.ask({"id": 4, "type": "read", "from": own, "to": f"{room}/history", "body": body})["body"]
    assert found["code"] == 200, found
    return dict(found["value"])


def kept_by(member: Any, reporter: Lines, room: str) -> bool:
    """
    Does this member keep the room? A change of it is published.
    """
    before = events(member, "written")
    publish_long(reporter, room, 1)
    history_of(reporter, room, limit=1)
    return events(member, "written") > before


def written(member: Any, reader: Lines, room: str) -> int:
    """
    The last version of the room.
    """
    return int(history_of(reader, room, limit=1)["version"])


def events(member: Any, name: str) -> float:
    """
    The count of one event of the member's kept objects.
    """
    found = fetched(member.process, "admin", "/metrics")
    return float(found.split(f'msgnode_objects_events_total{{event="{name}"}} ')[1].split()[0])


def run(node: NodeProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("msgnode")), "object", *arguments]
    url = ["--url", f"tcp://127.0.0.1:{node.ports['line']}"]
    return subprocess.run([*command, *url], capture_output=True, text=True, timeout=PATIENCE)


def test_command_line(start: Callable[[], NodeProcess]) -> None:
    """
    `msgnode object` shows an object as it was, its changes, and publishes them again elsewhere.
    """
    node = start()
    client = Lines(node.ports["line"], "runtime://localhost/reader")
    for number in (1, 2, 3):
        client.send(update(number))
    assert read(client)["version"] == 3

    with ThreadPoolExecutor() as pool:
        running = [
            pool.submit(run, node, *arguments)
            for arguments in (
                ("at", OBJECT, "--version", "2", "--json"),
                ("log", OBJECT, "--from", "2"),
                ("replay", OBJECT, "--to", "comm://localhost/rooms/2", "--json"),
                ("at", OBJECT, "--version", "9"),
                ("at", OBJECT, "--time", "yesterday"),
            )
        ]
        state, log, replayed, future, wrong = [each.result() for each in running]
    copied = run(node, "log", "comm://localhost/rooms/2", "--json")

    assert json.loads(state.stdout)["value"] == 2
    assert [line.split()[0] for line in log.stdout.splitlines()] == ["2", "3"]
    assert json.loads(replayed.stdout)["sent"] == 3
    assert [json.loads(line)["message"]["body"]["value"] for line in copied.stdout.splitlines()] == [1, 2, 3]
    assert (future.returncode, wrong.returncode) == (1, 2)
    assert "has versions up to 3, not 9" in future.stderr
    node.stop()


def test_damaged_journal(start: Callable[[], NodeProcess]) -> None:
    """
    A node whose journal is damaged starts, and says what it cannot give.
    """
    node = start()
    client = Lines(node.ports["line"], "runtime://localhost/reader")
    for number in range(1, 6):
        client.send(update(number * 11111))
    assert read(client)["version"] == 5
    node.stop()
    (segment,) = sorted((node.state / "objects").glob("*.seg"))[:1]
    segment.write_bytes(segment.read_bytes().replace(b"33333", b"33x33"))

    node = start()
    client = Lines(node.ports["line"], "runtime://localhost/reader")
    page, state = read(client), read(client, at=5)

    assert [change["version"] for change in page["changes"]] == [1, 2, 4, 5]
    assert page["missing"] == state["missing"] == [{"from": 3, "to": 3, "why": "damaged"}]
    assert (state["value"], state["complete"]) == (55555, False)
    assert "parts of the journal of objects are damaged" in node.said + node._output.read()
    node.stop()
