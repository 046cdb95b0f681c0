"""
Back ends that say nothing at all: a listener that is full, and a host that drops what it is sent.
"""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.integration.process import PATIENCE, Lines, NodeProcess
from tests.integration.test_registry import HYPERTY, REGISTRY, RUNTIME, RegistryProcess, ask, register

DEADLINE = 1.0  # seconds
QOS = "domain://qos-broker.localhost"
OTHER = "runtime://localhost/other"
# A network of its own, and in it a host whose packets lead nowhere: nobody refuses, and nobody answers.
HOLE = (
    "ip link add hole type veth peer name end && ip addr add 192.0.2.1/24 dev hole"
    " && ip link set hole up && ip link set end up"
    " && ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev hole && exec "
)


class Full:
    """
    A listener whose backlog is full: the kernel drops every SYN.
    """

    def __init__(self, port=0):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.socket.listen(0)
        self.port = self.socket.getsockname()[1]
        self.inside = []
        for _ in range(8):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", self.port))
            self.inside.append(client)
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", self.port), 0.3)

    def stop(self):
        for client in [self.socket, *self.inside]:
            client.close()


@pytest.fixture
def started():
    """
    What is stopped after the test.
    """
    things = []
    yield things.append
    for thing in things:
        thing.stop()


def node_with(registry, tmp_path):
    anywhere = "tcp:0:interface=127.0.0.1"
    config = tmp_path / "msgnode.toml"
    config.write_text(
        f'web = []\nlines = ["{anywhere}"]\nadmin.listen = "{anywhere}"\n'
        f'[registry]\nurl = "{registry}"\ndeadline_seconds = {DEADLINE}\n'
        "disconnect_after_seconds = 0\npoll_seconds = 0.2\n"
        f'[global_registry]\nurl = "{registry}"\ndeadline_seconds = {DEADLINE}\n'
    )
    return NodeProcess("--config", str(config), listeners=2)


def counted(node):
    page = urllib.request.urlopen(f"http://127.0.0.1:{node.ports['admin']}/metrics", timeout=PATIENCE)
    return page.read().decode()


def test_registry_whose_listener_is_full(started, tmp_path):
    """
    A registry whose listener is full: all are answered 504, it is counted and given up, and the log is calm.
    """
    full = Full()
    started(full)
    node = node_with(f"http://127.0.0.1:{full.port}", tmp_path)
    started(node)
    device = Lines(node.ports["line"], RUNTIME)

    asked = {
        "keep-alive": ("update", REGISTRY, {"resource": HYPERTY}),
        "create": ("create", REGISTRY, {"value": {"url": HYPERTY, "user": "ann", "descriptor": "d"}}),
        "read": ("read", REGISTRY, {"resource": HYPERTY}),
        "delete": ("delete", REGISTRY, {"value": {"url": HYPERTY, "user": "ann"}}),
        "guid": ("read", "global://registry", {"guid": "user-guid://x"}),
    }
    for id, (type, to, body) in asked.items():
        device.send({"id": id, "type": type, "from": f"{RUNTIME}/registry/", "to": to, "body": body})
    answers = {reply["id"]: reply["body"]["code"] for reply in (device.receive() for _ in asked)}

    assert answers == dict.fromkeys(asked, 504)
    began = time.monotonic()
    while 'msgnode_back_end_circuit_open{back_end="domain_registry"} 1.0' not in counted(node):
        assert time.monotonic() < began + PATIENCE
        time.sleep(0.1)
    assert 'back_end="domain_registry",outcome="silent"' in counted(node)
    assert ask(device, "update", resource=HYPERTY)["code"] == 504
    node.stop()
    assert "the domain registry at" in node.said
    assert "Traceback" not in node.said


def test_provider_of_identity_and_a_qos_broker_that_are_full(started, tmp_path):
    """
    A provider of identity and a QoS broker that are full: who asks is told to come later.
    """
    full = Full()
    started(full)
    url = f"http://127.0.0.1:{full.port}"
    anywhere = "tcp:0:interface=127.0.0.1"
    config = tmp_path / "msgnode.toml"
    config.write_text(
        f"""
web = []
lines = ["{anywhere}"]
admin.listen = "{anywhere}"
[qos]
url = "{url}"
csp = "example"
deadline_seconds = {DEADLINE}
[identity]
auth = "optional"
[[identity.providers]]
domain = "localhost"
issuer = "{url}"
audiences = ["msgnode"]
deadline_seconds = {DEADLINE}
[identity.providers.introspection]
client_id = "msgnode"
client_secret = "secret"
url = "{url}/introspect"
"""
    )
    node = NodeProcess("--config", str(config), listeners=2)
    started(node)
    stranger = Lines(node.ports["line"])
    stranger.send({"id": 1, "type": "open", "from": OTHER, "to": "mn:/session", "body": {"token": "opaque"}})
    device = Lines(node.ports["line"], RUNTIME)
    turn = {"id": 2, "type": "create", "from": f"{RUNTIME}/q", "to": QOS, "body": {"resource": "/turn"}}

    assert device.ask(turn)["body"]["code"] in (503, 504)
    assert "4401" in json.dumps(stranger.receive())
    page = counted(node)
    assert 'msgnode_back_end_requests_total{back_end="identity_provider_localhost' in page
    node.stop()
    assert "Traceback" not in node.said


def test_full_policy_source_is_logged_once(started, tmp_path):
    """
    A source of policies that is full: the log says so, and once.
    """
    full = Full()
    started(full)
    anywhere = "tcp:0:interface=127.0.0.1"
    config = tmp_path / "msgnode.toml"
    config.write_text(
        f'web = []\nlines = ["{anywhere}"]\nadmin.listen = "none"\n[policy]\n'
        f'source = "http://127.0.0.1:{full.port}/policies.json"\n'
        f"deadline_seconds = {DEADLINE}\nrefresh_seconds = 1\n"
    )
    node = NodeProcess("--config", str(config), listeners=1)
    started(node)

    node.read_until("did not answer within")
    time.sleep(3 * DEADLINE)
    node.stop()
    assert node.said.count("did not answer within") == 1
    assert "Traceback" not in node.said


def test_session_ends_meanwhile(started, tmp_path):
    """
    What a session had registered is disconnected, though the registry was full at the session's end.
    """
    data = str(tmp_path / "registry.sqlite")
    registry = RegistryProcess("--data", data)
    node = node_with(f"http://127.0.0.1:{registry.port}", tmp_path)
    started(node)
    device = Lines(node.ports["line"], RUNTIME)
    assert register(device) == {"code": 200}
    registry.stop()
    full = Full(registry.port)

    device.ask({"id": 2, "type": "close", "from": RUNTIME, "to": "mn:/session"})
    node.read_until("a disconnection failed at the domain registry")
    full.stop()
    registry = RegistryProcess("--data", data, port=registry.port)
    started(registry)

    other = Lines(node.ports["line"], OTHER)
    began = time.monotonic()
    while ask(other, "read", resource=HYPERTY)["code"] != 408:
        assert time.monotonic() < began + PATIENCE
        time.sleep(0.2)
    node.stop(signal.SIGTERM)
    assert "Traceback" not in node.said


def test_drops_what_it_is_sent(tmp_path):
    """
    A host that drops SYN is silence: 504 at the deadline, counted, given up, and no traceback.
    """
    script = tmp_path / "ask.py"
    script.write_text(
        """
import json
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.logger import globalLogPublisher
from msgnode.config.sections import BackEndOptions
from msgnode.backends.http_client import BackendClient
from msgnode.protocol.errors import Rejected

said = []
globalLogPublisher.addObserver(lambda event: said.append(event["log_level"].name))


async def main(reactor):
    rest = BackendClient("http://192.0.2.2:4567", BackEndOptions(deadline_seconds=0.6), reactor, "registry")
    asked = [rest.request("GET" if n % 2 else "DELETE", "/x") for n in range(6)]
    codes = []
    for each in asked:
        try:
            await each
        except Rejected as why:
            codes.append(why.code)
    told = [level for level in said if level != "info"]
    print(json.dumps([codes, dict(rest.counts), rest.down, told]))


react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
"""
    )
    unshare = shutil.which("unshare")
    command = [unshare, "-rn", "sh", "-c", HOLE + f"{sys.executable} {script}"]
    if unshare is None or subprocess.run([*command[:4], HOLE + "true"], capture_output=True).returncode:
        pytest.skip("no network of its own to be had here")

    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    assert done.stderr == ""
    assert json.loads(done.stdout) == [[504] * 6, {"silent": 6}, True, ["warn"]]
