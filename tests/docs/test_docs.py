"""
What the documentation shows is what the node does, and it names all there is.
"""

import json
import re
import tomllib
from typing import get_args

import msgspec
import pytest
from twisted.web.test.requesthelper import DummyRequest

from msgnode.admin.cluster_metrics import METRICS, STATES
from msgnode.admin.health import EventLoopLag
from msgnode.admin.link_metrics import COUNTS, GAUGES, OWN_GAUGES, TOTALS
from msgnode.admin.links_api import ORDERS
from msgnode.admin.metrics import Metrics
from msgnode.admin.stubs.stub_metrics import METRICS as STUB_METRICS
from msgnode.cli.contexts import Contexts
from msgnode.config.cluster import ClusterOptions
from msgnode.config.federation import Peer
from msgnode.config.foreign import ForeignStub
from msgnode.config.loader import check
from msgnode.config.schema import Config, ConfigError, Listen, PoolAddresses
from msgnode.connectors.node_websocket import UNSUPPORTED
from msgnode.foreign.lifecycle.stub_host import LIMITS
from msgnode.foreign.lifecycle.stub_record import EVENTS
from msgnode.foreign.lifecycle.stub_record import STATES as STATES_OF_STUBS
from msgnode.links.operations import AdminState, LinkState
from msgnode.mining.mined.slo_file import parse_slos
from msgnode.protocol import close_codes
from msgnode.sessions.outbox import TRANSITIONS
from msgnode.storage.node_lines import NodeLine
from msgnode.storage.traffic_log import TrafficLine
from tests.support.examples import TOP, Bound, Play, blocks, requests, sections
from tests.support.fakes import MemoryNode
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.test_imports import LAYERS

CONVERSATIONS = {
    heading: found
    for heading, found in sections("docs/protocol.md").items()
    if any(block.info.startswith("messages") for block in found)
}
EVERYWHERE = [
    "README.md",
    "docs/browser.md",
    "docs/client.md",
    "docs/devices.md",
    "docs/cli.md",
    "docs/protocol.md",
    "docs/operations.md",
    "docs/traffic-log.md",
    "docs/mining.md",
]
EVERYWHERE += ["docs/backends.md", "docs/federation.md", "docs/records.md", "docs/cluster.md"]
EVERYWHERE += ["docs/foreign-domains.md"]
EVERYWHERE += ["docs/objects.md"]
CONFIG = (TOP / "etc/msgnode.toml").read_text("utf-8")
OPERATIONS = (TOP / "docs/operations.md").read_text("utf-8")
# Their defaults depend on the machine, or stand for a listener.
_ELSEWHERE = {"node", "traffic", "web", "lines", "admin.listen"}


def rows(path, heading):
    """
    The cells of the tables below a heading, without the first two lines of each.
    """
    text = (TOP / path).read_text("utf-8").partition(f"\n{heading}\n")[2]
    text = re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line] for line in lines]
    return [cells for cells in found if cells[0].startswith("`")]


def defaults(struct, prefix=""):
    """
    Every key of the configuration, with its default.
    """
    found = {}
    for field in msgspec.structs.fields(struct):
        value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        if isinstance(value, msgspec.Struct):
            found.update(defaults(type(value), f"{field.name}."))
        else:
            found[prefix + field.name] = value
    return found


def flat(table, prefix=""):
    """
    The keys of a TOML table, with their values; pools and listeners stay as they are.
    """
    found = {}
    for key, value in table.items():
        if isinstance(value, dict) and key not in ("pools", "listen", "connectors"):
            found.update(flat(value, f"{key}."))
        else:
            found[prefix + key] = value
    return found


# -- what is shown ---------------------------------------------------------


@pytest.mark.parametrize("heading", CONVERSATIONS)
def test_conversations(heading):
    """
    Every conversation in docs/protocol.md goes as it is written, and nothing else is sent.
    """
    play = Play()

    for block in CONVERSATIONS[heading]:
        if block.info == "toml":
            play.configure(block)
        elif block.info.startswith("messages"):
            play.converse(block)


@pytest.mark.parametrize("path", EVERYWHERE)
def test_code_blocks_of_documents_are_valid(path):
    """
    Whatever is shown in JSON, TOML or Python is that, and the node, or `mine check`, takes every key of TOML.
    """
    for block in blocks(path):
        if block.info == "json":
            json.loads(block.text)
        elif block.info == "toml":
            check(tomllib.loads(block.text), path)
        elif block.info == "toml slo":
            assert parse_slos(block.text, path)
        elif block.info == "toml contexts":
            assert msgspec.convert(tomllib.loads(block.text), Contexts).context
        elif block.info == "python":
            compile(block.text, f"{path}:{block.line}", "exec")
        else:
            known = (
                "messages",
                "messages lines",
                "sh",
                "sh 2",
                "output",
                "nginx",
                "jsonl",
                "mermaid",
                "packets",
                "js",
                "html",
                "xml",
                "c",
            )
            assert block.info in known, f"{path}:{block.line}: {block.info!r}"


def test_packets():
    """
    What docs/protocol.md shows of Socket.IO on the wire goes so.
    """
    bound, client = Bound(), HTTPClient(Network())
    [shown] = [block for block in blocks("docs/protocol.md") if block.info == "packets"]

    for method, query, body, expected in requests(shown):
        answer = client.request(method, f"/socket.io/{bound.fill(query)}", body.encode())
        assert bound.reads(expected, answer.body.decode()), f"{expected}: but {answer.body!r}"


def test_state_machine():
    """
    The drawing in docs/protocol.md is that of the table the node goes by.
    """
    drawn = next(block for block in blocks("docs/protocol.md") if block.info == "mermaid").text

    steps = re.findall(r"(\S+) --> (\S+): (\S+)", drawn.replace("[*]", "none"))

    assert {(before, event): after for before, after, event in steps} == TRANSITIONS


@pytest.mark.parametrize("written, message", rows("docs/operations.md", "## Troubleshooting")[:10])
def test_mistake_in_the_configuration_is_told_in_the_words(written, message):
    """
    A mistake in the configuration is told in the words of docs/operations.md.
    """
    with pytest.raises(ConfigError) as raised:
        check(tomllib.loads(written.strip("`")), "node.toml")

    assert message == f"`msgnode: {raised.value}`"


def test_traffic_examples():
    """
    The example lines in docs/traffic-log.md are lines of the traffic log, in its order of keys.
    """
    shown = next(block for block in blocks("docs/traffic-log.md") if block.info == "jsonl").text.splitlines()

    kinds = [NodeLine if '"kind":"node"' in line else TrafficLine for line in shown]
    decoded = [msgspec.json.decode(line, type=kind) for line, kind in zip(shown, kinds, strict=True)]

    assert shown == [msgspec.json.encode(line).decode() for line in decoded]


# -- what is named ---------------------------------------------------------


def test_example_configuration_loads():
    """
    etc/msgnode.toml loads as it stands, and changes nothing.
    """
    config = check(tomllib.loads(CONFIG), "etc/msgnode.toml")

    assert Config().listeners() == config.listeners()
    shown = flat(tomllib.loads(CONFIG))
    assert {key: value for key, value in defaults(Config).items() if key in shown} | {
        key: shown[key] for key in _ELSEWHERE & shown.keys()
    } == shown


def test_example_configuration_is_complete():
    """
    etc/msgnode.toml names every key, and loads too when the examples in it are switched on.
    """
    switched_on = re.sub(r"^#(?=[\[a-z])", "", CONFIG, flags=re.MULTILINE)

    table = tomllib.loads(switched_on)

    config = check(table, "etc/msgnode.toml")
    assert defaults(Config).keys() == flat(table).keys()
    assert set(Listen.__struct_fields__) == {key for listen in table["listen"] for key in listen}
    assert set(Peer.__struct_fields__) == {key for peer in table["peer"] for key in peer}
    assert set(ForeignStub.__struct_fields__) == {key for stub in table["foreign"]["stub"] for key in stub}
    assert set(PoolAddresses.__struct_encode_fields__) == {
        key for pool in table["pools"].values() for key in pool
    }
    assert all(pool.all_addresses() for pool in config.pools.values())


def test_operations_names_every_key():
    """
    docs/operations.md has every key of the configuration, with its default.
    """
    found = {key.strip("`"): default for key, _, default in rows("docs/operations.md", "## Keys")}

    known = defaults(Config)
    assert list(known) == sorted(found, key=list(known).index)
    listeners = flat(tomllib.loads(CONFIG))
    for key, default in known.items():
        if key in ("web", "lines", "admin.listen"):
            default = listeners[key]
        if default is None:
            assert "none" == found[key], key
            continue
        if key not in ("node", "traffic", "state", "policy.decision_log"):
            assert f"`{json.dumps(default)}`" == found[key], key


def test_operations_names_every_option():
    """
    docs/operations.md has every option of `twistd msgnode`.
    """
    from msgnode.service.options import Options

    found = " ".join(row[0] for row in rows("docs/operations.md", "## Options"))

    known = {f"--{name.rstrip('=')}" for name in Options().longOpt}
    assert known == set(re.findall(r"--[a-z-]+", found))


def test_operations_names_every_metric():
    """
    docs/operations.md explains every metric, and no other.
    """
    node = MemoryNode()
    page = Metrics(node, EventLoopLag(node.clock), int).render_GET(DummyRequest([b""])).decode()

    found = [cells[0].strip("`") for cells in rows("docs/operations.md", "## Monitoring")]

    # A counter is announced under the name it is shown with.
    assert re.findall(r"^# TYPE (\S+)", page, re.MULTILINE) == found


def test_operations_names_every_metric_of_links():
    """
    docs/operations.md explains every metric that a node with links has in addition, and no other.
    """
    documented = rows("docs/operations.md", "## Monitoring of links")
    known: dict[str, tuple[str, ...]] = {f"msgnode_{name}": () for name, _ in TOTALS}
    known |= {f"msgnode_{row.name}": row.labels for row in GAUGES}
    known |= {f"msgnode_{name}": () for name, *_ in OWN_GAUGES}
    known |= {f"msgnode_{row.name}_total": row.labels for row in COUNTS}

    found = {cells[0].strip("`"): tuple(re.findall("`([a-z]+)`", cells[1])) for cells in documented}

    assert list(known.items()) == list(found.items())


def test_operations_names_every_metric_of_a_cluster():
    """
    docs/operations.md explains every metric that a node of a cluster has in addition, and no other.
    """
    documented = rows("docs/operations.md", "## Monitoring of a cluster")
    known = [(f"msgnode_{row[0]}", row[1], *(f"`{label}`" for label in row[2])) for row in METRICS]

    found = [(cells[0].strip("`"), *cells[1].split(", ")) for cells in documented]

    assert known == found
    assert all(f"`{state}`" in documented[1][2] for state in STATES)


def test_operations_names_every_metric_of_foreign_stubs():
    """
    docs/operations.md explains every metric that a node with foreign stubs has in addition, and every event.
    """
    documented = rows("docs/operations.md", "## Monitoring of foreign stubs")
    known = [(f"msgnode_{row[0]}", row[1], *(f"`{label}`" for label in row[2])) for row in STUB_METRICS]

    found = [(cells[0].strip("`"), *cells[1].split(", ")) for cells in documented]

    assert known == found
    assert [] == [event for event in EVENTS if f"`{event}`" not in documented[-2][2]]
    assert [] == [limit for limit in LIMITS if f"`{limit}`" not in documented[-1][2]]
    states = [cells[0].strip("`") for cells in rows("docs/foreign-domains.md", "## For operators")]
    assert list(STATES_OF_STUBS) == states


def test_admin_names_every_endpoint_and_every_verb():
    """
    docs/admin.md has every endpoint of the admin API with its role, and every verb of `msgnode admin`.
    """
    from msgnode.cli.admin.group import VERBS
    from tests.support.network import Network

    found = [(cells[0].strip("`"), cells[1]) for cells in rows("docs/admin.md", "## The API")]
    known = [(f"{each.verb} {each.path}", each.role) for each in Network().operations.endpoints()]
    text = (TOP / "docs/admin.md").read_text("utf-8")

    assert known == found
    assert [] == [verb.name for verb in VERBS if not re.search(rf"`(msgnode admin )?{verb.name}\b", text)]


def test_federation_names_every_state_and_order():
    """
    docs/federation.md has each state of a link, each administrative state, and each order.
    """
    text = (TOP / "docs/federation.md").read_text("utf-8")
    table = rows("docs/federation.md", "## For operators")
    states = [cells[0].strip("`") for cells in table if cells[0].strip("`") in get_args(LinkState)]

    assert list(get_args(LinkState)) == states
    assert all(f"`{state}`" in text for state in set(get_args(AdminState)) - {"enabled"})
    assert all(f"`msgnode link {order} DOMAIN`" in text for order in ORDERS)
    assert all(re.search(f"`POST /api/v1/links/DOMAIN/.*{order}`", text) for order in ORDERS)


def test_traffic_log_names_every_key():
    """
    docs/traffic-log.md explains every key of a line, in their order, and its Spark schema has them all.
    """
    fields = (*msgspec.structs.fields(TrafficLine), *msgspec.structs.fields(NodeLine))
    names = list(dict.fromkeys(field.encode_name for field in fields))
    code = next(block.text for block in blocks("docs/traffic-log.md") if "StructType" in block.text)

    found = [cells[0].strip("`") for cells in rows("docs/traffic-log.md", "## Keys")]

    assert names == found[: len(names)]
    assert names == re.findall(r'StructField\("(\w+)"', code)


def test_close_codes():
    """
    docs/protocol.md lists every closing of the node's own, with its reason.
    """
    closings = [value for value in vars(close_codes).values() if isinstance(value, close_codes.Closing)]
    text = (TOP / "docs/protocol.md").read_text("utf-8")

    assert len(closings) > 10
    for closing in [*closings, UNSUPPORTED]:
        assert f"| {closing.code} | `{closing.reason}` |" in text


def test_architecture_names_what_is_there():
    """
    Each file and class that docs/architecture.md names is there, and its order of rooms is the tested one.
    """
    text = (TOP / "docs/architecture.md").read_text("utf-8")

    def file(name):
        return TOP / name if name.startswith(("tests/", "docs/", "etc/")) else TOP / "msgnode" / name

    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.\w+)`", text):
        assert file(name).exists(), name
    for name, member in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`,? `([A-Z]\w+)", text):
        assert re.search(rf"^(class )?{member}\b", file(name).read_text(), re.MULTILINE), member
    rooms = re.search(r"LAYERS = \((.*?)\)", text, re.DOTALL)
    assert rooms is not None
    assert LAYERS == tuple(re.findall(r'"(\w+)"', rooms[1]))


@pytest.mark.parametrize("path", [*EVERYWHERE, "NEWS.md", "docs/performance.md"])
def test_links_of_documents_lead_somewhere(path):
    """
    What a document links to is there.
    """
    for target in re.findall(r"\]\(([^)#:]+)\)", (TOP / path).read_text("utf-8")):
        assert ((TOP / path).parent / target).exists(), target


def test_systemd_unit():
    """
    The systemd unit starts twistd in the foreground, without a pid file and with a configuration.
    """
    unit = (TOP / "etc/msgnode.service").read_text("utf-8")

    assert "twistd --nodaemon --pidfile= msgnode --config /etc/msgnode/msgnode.toml" in unit
    assert all(
        f"\n{line}\n" in unit
        for line in (
            "Type=notify",
            "Restart=on-failure",
            "RestartPreventExitStatus=2",
            "DynamicUser=yes",
            "StateDirectory=msgnode",
        )
    )


@pytest.mark.parametrize("name", ["msgnode.service", "msgnode@.service"])
def test_systemd_lets_a_node_stop(name):
    """
    The systemd units wait for a node that stops until it has handed its sessions over to other nodes.
    """
    [stop] = re.findall(r"TimeoutStopSec=(\d+)", (TOP / "etc" / name).read_text("utf-8"))

    assert int(stop) > Config().drain_seconds + ClusterOptions().handover_seconds
