"""
The node as an operator has it: installed, started by twistd, spoken to over sockets, stopped by signals.
"""

import glob
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.integration.process import PATIENCE, Lines, NodeProcess

FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None)
OPEN = {"id": 1, "type": "open", "from": "runtime://localhost/w", "to": "mn:/session"}


@pytest.fixture
def node():
    process = NodeProcess(environment={})  # no fork: what an operator starts
    yield process
    process.stop(signal.SIGKILL)


def websocket(node, runtime="runtime://localhost/w"):
    return opened(node, runtime)[0]


def opened(node, runtime="runtime://localhost/w"):
    """
    A client by WebSocket, and the answer to its `open`.
    """
    client = connect(f"ws://127.0.0.1:{node.ports['web']}/ws", open_timeout=PATIENCE, legacy=True)
    client.send(json.dumps({**OPEN, "from": runtime}))
    return client, json.loads(client.recv(PATIENCE))


def test_says_where_it_listens(node):
    """
    The start lines say what listens where, and how to open it to others.
    """
    node.stop()

    assert f"web: listening on 127.0.0.1:{node.ports['web']} (this machine only" in node.said
    assert f"line: listening on 127.0.0.1:{node.ports['line']} (this machine only" in node.said


def test_websocket_to_line(node):
    """
    A message sent on a WebSocket arrives on a TCP line, byte for byte.
    """
    device = Lines(node.ports["line"], "runtime://localhost/device")
    browser = websocket(node)

    sent = '{"id": 5, "type":"update","from":"comm://localhost/o", "to":"runtime://localhost/device/x"}'
    browser.send(sent)

    assert sent.encode() + b"\n" == device.receive_line()
    browser.close()
    device.close()


def test_line_to_websocket(node):
    """
    An observer in a browser hears what a device publishes.
    """
    browser = websocket(node)
    browser.send(
        json.dumps(
            {
                "id": 2,
                "type": "subscribe",
                "from": "runtime://localhost/w/sm",
                "to": "domain://msg-node.localhost/sm",
                "body": {"resources": ["comm://localhost/o/changes"]},
            }
        )
    )
    assert json.loads(browser.recv(PATIENCE))["body"] == {"code": 200}
    device = Lines(node.ports["line"], "runtime://localhost/device")

    message = {"id": 3, "type": "update", "from": "comm://localhost/o", "to": "comm://localhost/o/changes"}
    device.send(message)

    assert message == json.loads(browser.recv(PATIENCE))
    browser.close()
    device.close()


def test_sigterm_tells_everybody(node):
    """
    On SIGTERM a WebSocket is closed with 1001 and a line is told; the node ends by that signal.
    """
    browser = websocket(node)
    device = Lines(node.ports["line"], "runtime://localhost/device")

    node.process.send_signal(signal.SIGTERM)

    with pytest.raises(ConnectionClosed) as closed:
        browser.recv(PATIENCE)
    farewell = device.receive()
    assert closed.value.rcvd.code == 1001
    word, _, seconds = closed.value.rcvd.reason.partition("; retry_after=")
    assert word == "going away" and 1 <= float(seconds) <= 2
    later = farewell["body"].pop("retry_after")
    assert farewell == {
        "type": "close",
        "from": "mn:/session",
        "body": {"code": 1001, "reason": "going away"},
    }
    assert 1 <= later <= 2
    assert device.receive() is None
    assert node.wait() == -signal.SIGTERM


def test_traffic_log_is_complete_after_sigterm(node):
    """
    What was carried before SIGTERM is in the traffic log, every line of it whole.
    """
    device = Lines(node.ports["line"], "runtime://localhost/device")
    for number in range(300):
        device.send({"id": number, "type": "update", "from": "x", "to": "runtime://localhost/device/y"})
    for _ in range(300):
        device.receive()

    node.stop()

    carried = [line["id"] for line in node.log() if line["kind"] == "message" and line["type"] == "update"]
    assert carried == list(range(300))


def test_after_a_restart_a_stub_that_says_re_open(node):
    """
    After a restart a stub that says re-open with its old token is given a new session and goes on.
    """
    token = opened(node)[1]["body"]["runtimeToken"]
    node.stop()
    again = NodeProcess()

    client = connect(f"ws://127.0.0.1:{again.ports['web']}/ws", open_timeout=PATIENCE, legacy=True)
    client.send(json.dumps({**OPEN, "type": "re-open", "from": f"runtime://localhost/w/{token}"}))
    reply = json.loads(client.recv(PATIENCE))

    assert reply["body"]["code"] == 200
    assert reply["body"]["runtimeToken"] != token
    client.close()
    again.stop()


def test_kill_leaves_whole_lines():
    """
    After kill -9 the log has whole lines, and the next start closes the one that was torn.
    """
    first = NodeProcess()
    device = Lines(first.ports["line"], "runtime://localhost/device")
    for number in range(100):
        device.send({"id": number, "type": "update", "from": "x", "to": "runtime://localhost/device/y"})
        device.receive()
    _grown(first.traffic, 100)
    first.stop(signal.SIGKILL)
    log = next(first.traffic.glob("*.jsonl"))
    with log.open("a") as file:
        file.write('{"v":1,"kind":"mess')

    second = NodeProcess(traffic=str(first.traffic))
    Lines(second.ports["line"], "runtime://localhost/other").close()
    second.stop()

    files = sorted(first.traffic.glob("*.jsonl"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert len(lines) > 100
    assert [line for line in lines if not line.endswith("}")] == ['{"v":1,"kind":"mess']
    assert all(json.loads(line) for line in lines if line.endswith("}"))


def _grown(directory, lines):
    """
    Wait until the log has so many lines: it is written at most a second late.
    """
    deadline = time.monotonic() + PATIENCE
    while sum(len(file.read_text().splitlines()) for file in directory.glob("*.jsonl")) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_port_in_use(node):
    """
    A port that is taken stops the start, in one line that names it.
    """
    port = node.ports["line"]

    other = NodeProcess("--lines", f"tcp:{port}:interface=127.0.0.1", listeners=4)

    assert other.wait() != 0
    assert f"msgnode: cannot listen on tcp:{port}:interface=127.0.0.1: [Errno 98]" in other.said


def test_configuration_mistake(tmp_path):
    """
    A mistake in the configuration stops the start with one line: file, key, expected, found.
    """
    file = tmp_path / "msgnode.toml"
    file.write_text('[session]\nexpiry_seconds = "a day"\n')

    node = NodeProcess("--config", str(file))

    assert node.wait() == 2
    assert node.said == f"msgnode: {file}: session.expiry_seconds: expected a number, found 'a day'\n"


def test_unwritable_traffic_directory(tmp_path):
    """
    A traffic log that cannot be written stops the start and says what to do.
    """
    (tmp_path / "file").write_text("")

    node = NodeProcess(traffic=str(tmp_path / "file" / "traffic"))

    assert node.wait() != 0
    assert f"msgnode: traffic: cannot write in {tmp_path}/file/traffic: Not a directory" in node.said


def test_slow_reader_harms_nobody(node):
    """
    A client that never reads is cut off when too much waits for it; the others go on.
    """
    deaf = socket.create_connection(("127.0.0.1", node.ports["line"]), PATIENCE)
    deaf.sendall(json.dumps({**OPEN, "from": "runtime://localhost/deaf"}).encode() + b"\n")
    deaf.recv(1000)
    sender = Lines(node.ports["line"], "runtime://localhost/sender")
    text = "x" * 100_000

    for number in range(300):
        body = {"value": text}
        sender.send(
            {"id": number, "type": "update", "from": "x", "to": "runtime://localhost/deaf/y", "body": body}
        )
    reply = sender.ask(
        {
            "id": "still there?",
            "type": "subscribe",
            "from": "runtime://localhost/sender/sm",
            "to": "domain://msg-node.localhost/sm",
            "body": {"resources": ["comm://localhost/o/changes"]},
        }
    )
    node.stop()

    assert reply["body"] == {"code": 200}
    assert "runtime://localhost/deaf does not read; closing its connection" in node.said
    events = [line.get("event") for line in node.log() if line.get("session") == "runtime://localhost/deaf"]
    assert "detached" in events
    deaf.close()
    sender.close()


def test_command_checks_the_defaults():
    """
    `msgnode check` without a file says what a node without one would do.
    """
    command = Path(sys.executable).with_name("msgnode")

    done = subprocess.run([command, "check"], capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert done.returncode == 0
    assert "tcp:9090:interface=127.0.0.1" in done.stdout


def _metric(node, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['admin']}/metrics", timeout=PATIENCE) as page:
        text = page.read().decode()
    return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)), 0.0)


@pytest.mark.skipif(FAKETIME is None, reason="apt-get install libfaketime")
@pytest.mark.parametrize("jump", ["+2d", "-1d"])
def test_wall_clock_jumps(tmp_path, jump):
    """
    A wall clock that is set by days ends no session, and holds up no timer.
    """
    wall = tmp_path / "faketime"
    wall.write_text("+0\n")
    config = tmp_path / "msgnode.toml"
    anywhere = "tcp:0:interface=127.0.0.1"
    config.write_text(
        f'web = ["{anywhere}"]\nlines = ["{anywhere}"]\nadmin.listen = "{anywhere}"\n'
        "[session]\nexpiry_seconds = 3600\nunused_expiry_seconds = 3600\nanonymous_expiry_seconds = 2\n"
    )
    environment = {
        "LD_PRELOAD": FAKETIME,
        "FAKETIME_TIMESTAMP_FILE": str(wall),
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
    }
    node = NodeProcess("--config", str(config), environment=environment)
    device = Lines(node.ports["line"], "runtime://localhost/device")
    Lines(node.ports["line"], "runtime://localhost/away").close()
    anonymous = Lines(node.ports["line"])
    anonymous.ask({"id": 1, "type": "open", "to": "mn:/session"})
    while _metric(node, 'msgnode_sessions{connector="",state="away"}') != 1:
        time.sleep(0.05)

    wall.write_text(f"{jump}\n")
    jumped = time.monotonic()
    anonymous.close()
    while not _metric(node, 'msgnode_session_events_total{event="expired"}'):
        assert time.monotonic() < jumped + PATIENCE
        time.sleep(0.1)
    node_time = _wall_of(device, node)
    node.stop()

    assert time.monotonic() - jumped > 1.5  # the anonymous one expired when it should
    expired = [line["session"] for line in node.log() if line.get("event") == "expired"]
    assert all("anonymous" in session for session in expired) and len(expired) == 1
    assert abs(node_time - time.time()) > 80_000  # the clock of the process was set indeed


def _wall_of(device, node):
    """
    What time the node thinks it is, by its traffic log.
    """
    device.ask({"id": 2, "type": "subscribe", "from": "x", "to": "mn:/session"})
    deadline = time.monotonic() + PATIENCE
    while not (lines := [line for line in node.log() if line.get("type") == "subscribe"]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return lines[-1]["time"] / 1e9


def test_half_open_is_noticed(node):
    """
    Whoever connects is probed after a minute of silence, on every listener.
    """
    clients = [
        socket.create_connection(("127.0.0.1", node.ports[kind]), PATIENCE) for kind in ("web", "line")
    ]
    local = {f"{client.getsockname()[1]:04X}" for client in clients}
    time.sleep(0.3)

    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table if line.split()[2].rpartition(":")[2] in local]
    accepted = [row for row in rows if row[1].rpartition(":")[2] in {f"{p:04X}" for p in node.ports.values()}]

    # The timer that runs: 02 is keepalive; when, in hundredths of a second.
    timers = [row[5].split(":") for row in accepted]
    assert [timer[0] for timer in timers] == ["02", "02"]
    assert all(5000 < int(timer[1], 16) <= 6000 for timer in timers)
    for client in clients:
        client.close()


def test_one_client_too_many(tmp_path):
    """
    Beyond the limit a WebSocket is closed with 1013, which says when to come back.
    """
    config = tmp_path / "msgnode.toml"
    config.write_text(
        'web = ["tcp:0:interface=127.0.0.1"]\nlines = []\n'
        'admin.listen = "none"\nlimits.connections_per_ip = 1\n'
    )
    node = NodeProcess("--config", str(config), listeners=1)
    first = websocket(node)

    with pytest.raises(ConnectionClosed) as closed:
        websocket(node, "runtime://localhost/second")
    node.stop()

    assert closed.value.rcvd.code == 1013
    assert closed.value.rcvd.reason.startswith("full; retry_after=")
    first.close()


def test_stops_within_its_time(tmp_path):
    """
    A client that does not react does not keep the node from stopping within `drain_seconds`.
    """
    config = tmp_path / "msgnode.toml"
    config.write_text(
        'web = []\nlines = ["tcp:0:interface=127.0.0.1"]\nadmin.listen = "none"\ndrain_seconds = 1\n'
    )
    node = NodeProcess("--config", str(config), listeners=1)
    deaf = Lines(node.ports["line"], "runtime://localhost/deaf")
    asked = time.monotonic()

    node.stop()

    assert time.monotonic() - asked < 10, "the default of drain_seconds"
    assert not node.said.count("Traceback")
    deaf.close()


def test_session_survives_a_kill(node):
    """
    After kill -9 a client comes back with its token, and is who it was.
    """
    token = opened(node)[1]["body"]["runtimeToken"]
    device = Lines(node.ports["line"], "runtime://localhost/device")
    node.stop(signal.SIGKILL)
    again = NodeProcess(state=str(node.state))

    client = connect(f"ws://127.0.0.1:{again.ports['web']}/ws", open_timeout=PATIENCE, legacy=True)
    client.send(json.dumps({**OPEN, "type": "re-open", "from": f"runtime://localhost/w/{token}"}))
    reply = json.loads(client.recv(PATIENCE))

    assert reply["body"] == {"code": 200}
    client.close()
    device.close()
    again.stop()


def test_state_of_another_node(node):
    """
    Two nodes never share a state directory.
    """
    other = NodeProcess(state=str(node.state))

    assert other.wait() == 2
    assert f"msgnode: state: another node uses {node.state}" in other.said


@pytest.mark.parametrize("name", ["state.sqlite", "spool/spool-00000001.seg"])
def test_damaged_state(tmp_path, name):
    """
    A state that cannot be read stops the start with the file's name and the command that moves it aside.
    """
    state = tmp_path / "state"
    (state / "spool").mkdir(parents=True)
    (state / name).write_bytes(b"hello" * 1000)
    (state / "spool/spool-00000002.seg").write_bytes(b"")

    node = NodeProcess(state=str(state))

    assert node.wait() == 2
    assert str(state / name) in node.said
    assert f"'msgnode state repair {state}' moves it aside" in node.said
