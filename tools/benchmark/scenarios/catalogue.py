"""
What is measured: the scenarios, who runs in each, and what the project wants of it.

Our own entrant comes first; the others are what it is compared with.  Messages
are written one by one, as interfaces of the project define a window; BURST has
the same pattern written in blocks, because a peer's rank depends on it.
"""

from dataclasses import dataclass, field
from typing import Any

from benchmark.peers.servers import RECORDS

SIZES = {"100 B": 100, "1 kB": 1000, "10 kB": 10_000}


@dataclass(frozen=True)
class Entrant:
    """
    One column of a scenario: a server, the wire to it, and what differs in the job.

    `policies`: how many the node has; `body`: they look into bodies.
    `registry` is a second server behind a node: "registry" or "hung registry".  `config` is added to the
    node's file; `plane`: the data plane that it must run, "native" or "python".
    """

    label: str
    server: str
    wire: str = "websocket"
    job: dict[str, Any] = field(default_factory=dict)
    policies: int = 0
    body: bool = False
    registry: str = ""
    config: str = ""
    plane: str = ""


@dataclass(frozen=True)
class Target:
    """
    What is wanted: a ratio to another entrant, or with `against` None a figure.
    """

    against: str | None
    bound: float
    at_most: bool = False


@dataclass(frozen=True)
class Scenario:
    """
    One pattern of load, the same for each entrant.

    `fresh` starts the server anew for each run; `quick` is in the short run;
    `config` is added to the node's file.
    """

    name: str
    title: str
    unit: str
    load: str
    job: dict[str, Any]
    entrants: tuple[Entrant, ...]
    targets: tuple[Target, ...] = ()
    quick: bool = False
    fresh: bool = False
    config: str = ""


NODE = Entrant("msgnode", "msgnode")
PEERS = (NODE, Entrant("nats", "nats"), Entrant("crossbar", "crossbar"))
NODE_LINE = Entrant("msgnode line", "msgnode", "line")
NATS_LINE = Entrant("nats TCP", "nats", "line")
NODE_POLL = Entrant("msgnode polling", "msgnode", "poll")

P2P_TARGETS = {
    ("100 B", 8, 64): (Target("nats", 1.0), Target("crossbar", 25.0)),
    ("100 B", 1, 1): (Target("nats", 0.8),),
    ("100 B", 200, 1): (Target("nats", 0.7),),
    ("10 kB", 4, 16): (Target("nats", 0.7),),
}


def _point_to_point() -> list[Scenario]:
    grid = [(size, pairs, window) for size in SIZES for pairs in (1, 8, 200) for window in (1, 64)]
    wanted = list(P2P_TARGETS)
    return [_pairs(*shape) for shape in wanted + [shape for shape in grid if shape not in wanted]]


def _pairs(size: str, pairs: int, window: int) -> Scenario:
    return Scenario(
        name=f"p2p-{size.replace(' ', '')}-{pairs}-{window}",
        title=f"{size}, {pairs} pair{'s' * (pairs > 1)}, window {window}",
        unit="messages/s",
        load="pairs",
        job={"size": SIZES[size], "pairs": pairs, "window": window},
        entrants=PEERS,
        targets=P2P_TARGETS.get((size, pairs, window), ()),
        quick=(size, pairs, window) in P2P_TARGETS,
    )


BURST = Scenario(
    name="p2p-burst-100B-8-64",
    title="100 B, 8 pairs, window 64, in bursts",
    unit="messages/s",
    load="pairs",
    job={"size": 100, "pairs": 8, "window": 64, "burst": True},
    entrants=PEERS,
    quick=True,
)


def _spaces(size: str, pairs: int, window: int, burst: bool) -> Scenario:
    """
    The same with spaces in the JSON, as most programs in Python write it, beside compact JSON.
    """
    like = _pairs(size, pairs, window)
    return Scenario(
        name=like.name.replace("p2p-", "p2p-spaces-burst-" if burst else "p2p-spaces-"),
        title=f"{like.title}, JSON with spaces{', in bursts' if burst else ''}",
        unit=like.unit,
        load=like.load,
        job=like.job | {"spaces": True} | ({"burst": True} if burst else {}),
        entrants=(NODE, Entrant("msgnode, compact", "msgnode", job={"spaces": False}), PEERS[1]),
        targets=(Target("msgnode, compact", 0.9),),
    )


def _fanout(subscribers: int) -> Scenario:
    return Scenario(
        name=f"fanout-{subscribers}",
        title=f"fan-out to {subscribers}, 100 B, 16 publications under way",
        unit="deliveries/s",
        load="fanout",
        job={"size": 100, "subscribers": subscribers, "window": 16},
        entrants=PEERS,
        targets=(Target("nats", 1.3),) if subscribers == 1000 else (),
        quick=subscribers == 1000,
    )


def _allocation(number: int, window: int) -> Scenario:
    beside = Entrant("p2p, 1 pair", "msgnode", job={"load": "pairs", "size": 100, "pairs": 1})
    how = "one after another" if window == 1 else f"{window} under way"
    return Scenario(
        name=f"allocate-{number}-{window}",
        title=f"allocation of {number}, {how}, one client",
        unit="requests/s",
        load="allocation",
        job={"number": number, "window": window},
        entrants=(NODE, beside),
    )


def _polling(window: int) -> Scenario:
    return Scenario(
        name=f"poll-8-{window}",
        title=f"long polling, 100 B, 8 pairs, window {window}",
        unit="messages/s",
        load="polling",
        job={"size": 100, "pairs": 8, "window": window},
        entrants=(NODE_POLL,),
    )


def _socketio(transport: str, window: int) -> Scenario:
    wire = "websocket" if transport == "websocket" else "poll"
    return Scenario(
        name=f"socketio-{transport}-8-{window}",
        title=f"Socket.IO 1 by {transport}, 100 B, 8 clients that write to themselves, window {window}",
        unit="messages/s",
        load="socketio",
        job={"size": 100, "clients": 8, "window": window},
        entrants=(Entrant("msgnode", "msgnode", wire), Entrant("npm echo", "npm", wire)),
        targets=(Target("npm echo", 1.0),),
    )


def _memory(name: str, title: str, entrants: tuple[Entrant, ...], kib: float) -> Scenario:
    return Scenario(
        name=name,
        title=f"memory per idle {title} session at 10,000",
        unit="KiB RSS",
        load="memory",
        job={"sessions": 10_000},
        entrants=entrants,
        targets=(Target(None, kib, at_most=True),),
        fresh=True,
    )


LINES = Scenario(
    name="lines-8-64",
    title="TCP lines, 100 B, 8 pairs, window 64",
    unit="messages/s",
    load="pairs",
    job={"size": 100, "pairs": 8, "window": 64},
    entrants=(NODE_LINE, Entrant("msgnode WebSocket", "msgnode"), NATS_LINE),
    targets=(Target("msgnode WebSocket", 1.0),),
)

BINDINGS = Scenario(
    name="bindings",
    title="100 B, 8 senders, window 64, over 1,000,000 bindings",
    unit="messages/s",
    load="bindings",
    job={"size": 100, "pairs": 8, "window": 64},
    entrants=(
        Entrant("1,000,000", "msgnode", job={"bindings": 1_000_000}),
        Entrant("1,000", "msgnode", job={"bindings": 1000}),
    ),
    targets=(Target("1,000", 0.85),),
    fresh=True,
)

CONNECT = Scenario(
    name="connect",
    title="connect and open, 2000 sessions, 50 at a time",
    unit="sessions/s",
    load="connect",
    job={"sessions": 2000},
    entrants=PEERS,
)


def _resume(pairs: int, window: int, targets: tuple[Target, ...]) -> Scenario:
    return Scenario(
        name=f"resume-{pairs}-{window}",
        title=f"acknowledged resume, 100 B, {pairs} pair{'s' * (pairs > 1)}, window {window}",
        unit="messages/s",
        load="pairs",
        job={"size": 100, "pairs": pairs, "window": window},
        entrants=(Entrant("resume", "msgnode", job={"resume": True}), Entrant("without", "msgnode")),
        targets=targets,
    )


FLOOD = Scenario(
    name="flood",
    title="p99 of 100 messages/s beside one client that sends all it can",
    unit="ms",
    load="flood",
    job={"flood": "node"},
    entrants=(
        Entrant("flooded", "msgnode"),
        Entrant("a discard socket flooded", "msgnode", job={"flood": "discard"}),
    ),
    targets=(Target("a discard socket flooded", 3.0, at_most=True),),
)

STORM = Scenario(
    name="storm",
    title="10,000 lose the connection at once and come back without a pause",
    unit="s",
    load="storm",
    job={"sessions": 10_000},
    entrants=(NODE,),
    fresh=True,
)

AWAY = Scenario(
    name="away",
    title="10,000 sessions away with 100 messages waiting each",
    unit="MB RSS",
    load="away",
    job={"sessions": 10_000},
    entrants=(NODE,),
    targets=(Target(None, 268.4, at_most=True),),
    fresh=True,
)

RESTART = Scenario(
    name="restart",
    title="start with 100,000 sessions and 1,000,000 bindings on disk",
    unit="s",
    load="restart",
    job={"sessions": 100_000, "bindings": 1_000_000},
    entrants=(NODE,),
    targets=(Target(None, 10.0, at_most=True),),
    fresh=True,
)


def _policies(number: int, against: int, cold: bool, bound: float, extra: str = "") -> Scenario:
    """
    With so many policies, beside another number of them, or none.
    """
    entrants = tuple(
        Entrant(f"{count:,} policies" if count else "no policies", "msgnode", policies=count, body=cold)
        for count in (number, against)
    )
    return Scenario(
        name=f"policy-{number}{'-cold' if cold else ''}{extra}",
        title=f"100 B, 8 pairs, window 64, {number:,} policies"
        + (", a new address each, looking into the body" if cold else ", outcomes remembered"),
        unit="messages/s",
        load="policies" if cold else "pairs",
        job={"size": 100, "pairs": 8, "window": 64},
        entrants=entrants,
        targets=(Target(entrants[1].label, bound),),
    )


POLICIES = (
    _policies(10, 0, False, 0.7),
    _policies(10, 0, True, 0.3),
    _policies(1000, 10, False, 0.9),
    _policies(1000, 10, True, 0.9),
    _policies(10_000, 10, False, 0.83),
    _policies(10_000, 10, True, 0.83),
    Scenario(
        name="policy-decision",
        title="one decision among 1,000 policies, with what it reads of the message, median",
        unit="us",
        load="decide",
        job={"policies": 1000},
        entrants=(NODE,),
        targets=(Target(None, 25.0, at_most=True),),
    ),
    Scenario(
        name="policy-compile-lag",
        title="how late an event loop runs while 1,000 policies are compiled, worst",
        unit="ms",
        load="lag",
        job={"policies": 1000},
        entrants=(
            Entrant("compiling", "msgnode", job={"compiles": True}),
            Entrant("idle", "msgnode", job={"compiles": False}),
        ),
        targets=(Target(None, 10.0, at_most=True),),
    ),
)


def _records(kind: str, plane: str) -> Scenario:
    """
    A record of ten slots, checked and not; or of kind "none", nodes with and without records.
    """
    is_named = kind != "none"
    keys = f"[performance]\nnative = {'true' if plane == 'native' else 'false'}\n"
    off = f'{RECORDS}check = "off"\n' if is_named else ""
    labels = ("checked", "not checked") if is_named else ("knows records", "knows none")
    how = "in Python alone" if plane == "python" else "with the compiled data plane"
    what = {
        "plain": "5 STRING, 3 INTEGER, DOUBLE, BOOLEAN",
        "mixed": "3 STRING, 2 INTEGER, DOUBLE, BOOLEAN, LONG, UUID, DATE",
        "none": "no record, the same body",
    }
    return Scenario(
        name=f"records-{kind}-{plane}",
        title=f"{what[kind]}, TCP lines, 8 pairs, window 64, {how}",
        unit="messages/s of CPU",
        load="records",
        job={"pairs": 8, "window": 64, "record": kind if is_named else "mixed", "named": is_named},
        entrants=tuple(
            Entrant(label, "msgnode", "line", config=keys + more, plane=plane)
            for label, more in zip(labels, (RECORDS, off), strict=True)
        ),
        targets=(Target(labels[1], 0.8 if is_named else 0.95),),
    )


def _history(kept: str, plane: str) -> Scenario:
    """
    Updates of objects of which the node keeps the history, or of others beside them; and without a history.
    """
    keys = f"[performance]\nnative = {'true' if plane == 'native' else 'false'}\n"
    objects = "objects" if kept == "kept" else "others"
    labels = ("history", "no history") if kept == "kept" else ("history of others", "no history")
    how = "in Python alone" if plane == "python" else "with the compiled data plane"
    what = "updates of kept objects" if kept == "kept" else "updates of other objects"
    return Scenario(
        name=f"history-{kept}-{plane}",
        title=f"{what}, 100 B, TCP lines, 8 pairs, window 64, {how}",
        unit="messages/s",
        load="pairs",
        job={"size": 100, "pairs": 8, "window": 64, "object": True},
        entrants=tuple(
            Entrant(label, "msgnode", "line", config=keys + more, plane=plane)
            for label, more in zip(
                labels, (f'[objects]\nkeep = ["comm://localhost/{objects}/*"]\n', ""), strict=True
            )
        ),
        targets=(Target(labels[1], 0.9 if kept == "kept" else 0.97),),
    )


REST = Scenario(
    name="rest",
    title="REST, 100 B, 8 connections that read from one device, window 1",
    unit="requests/s",
    load="rest",
    job={"size": 100, "clients": 8, "path": "/resource"},
    entrants=(Entrant("/resource", "msgnode"), Entrant("/message", "msgnode", job={"path": "/message"})),
)

REGISTRY = Scenario(
    name="registry",
    title="records read from the domain registry, 100 under way",
    unit="requests/s",
    load="registry",
    job={"window": 100},
    entrants=(
        Entrant("through the node", "msgnode", "line", registry="registry"),
        Entrant("treq alone", "msgnode", "line", {"straight": True}, registry="registry"),
    ),
    targets=(Target("treq alone", 0.7),),
)

HUNG_REGISTRY = Scenario(
    name="hung-registry",
    title="100 B, 8 pairs, window 64, beside 100 requests/s to a registry",
    unit="messages/s",
    load="beside-registry",
    job={"size": 100, "pairs": 8, "window": 64, "asking": 100},
    entrants=(
        Entrant("it hangs", "msgnode", registry="hung registry"),
        Entrant("no requests", "msgnode", job={"asking": 0}, registry="registry"),
        Entrant("it answers", "msgnode", registry="registry"),
    ),
    targets=(Target("no requests", 0.9),),
    fresh=True,
)

DASHBOARD = Scenario(
    name="dashboard",
    title="100 B, 8 pairs, window 64, with the dashboard open half of the time",
    unit="messages/s",
    load="dashboard",
    job={"size": 100, "pairs": 8, "window": 64, "minutes": 10},  # at most
    entrants=(NODE,),
)

PROGRAM = Scenario(
    name="client",
    title="the client in Python, 100 B, sender and receiver in one program, window 64",
    unit="messages/s",
    load="program",
    job={"size": 100, "window": 64, "client": "msgnode"},
    entrants=(
        Entrant("client, lines", "msgnode", "line"),
        Entrant("client, lines, resume", "msgnode", "line", {"resume": True}),
        Entrant("client, WebSocket", "msgnode"),
        Entrant("plain Autobahn", "msgnode", job={"client": "autobahn"}),
    ),
    targets=(Target("plain Autobahn", 3.0),),
)


def _nats_client(size: str, window: int) -> Scenario:
    return Scenario(
        name=f"nats-client-{size.replace(' ', '')}-{window}",
        title=f"msgnode.nats, {size}, one connection to nats-server that writes to itself, window {window}",
        unit="messages/s",
        load="nats-program",
        job={"size": SIZES[size], "window": window},
        entrants=tuple(
            Entrant(label, "nats", "line", {"client": client})
            for label, client in (
                ("msgnode.nats", "twisted"),
                ("nats-py", "nats-py"),
                ("nats-py, uvloop", "uvloop"),
            )
        ),
    )


SCENARIOS = (
    *_point_to_point(),
    BURST,
    *(_spaces(*shape, burst=False) for shape in P2P_TARGETS),
    _spaces("100 B", 8, 64, burst=True),
    *(_fanout(subscribers) for subscribers in (1000, 100, 10)),
    LINES,
    *(_allocation(number, window) for number in (1, 3) for window in (1, 64)),
    *(_polling(window) for window in (1, 64)),
    REST,
    *(_socketio(transport, window) for transport in ("websocket", "polling") for window in (1, 64)),
    CONNECT,
    _memory("memory-websocket", "WebSocket", PEERS[:2], 12.0),
    _memory("memory-line", "line", (NODE_LINE, NATS_LINE), 4.0),
    BINDINGS,
    _resume(8, 64, (Target("without", 0.7),)),
    _resume(1, 1, ()),
    FLOOD,
    STORM,
    AWAY,
    RESTART,
    *POLICIES,
    *(_records(kind, plane) for kind in ("plain", "mixed", "none") for plane in ("python", "native")),
    *(_history(kept, plane) for kept in ("kept", "other") for plane in ("python", "native")),
    REGISTRY,
    HUNG_REGISTRY,
    DASHBOARD,
    PROGRAM,
    *(_nats_client("100 B", window) for window in (1, 64, 1000)),
    _nats_client("10 kB", 64),
)


def churn(minutes: int) -> Scenario:
    """
    Connect, bind and end for so many minutes; three or fewer have nothing to compare with.
    """
    return Scenario(
        name="churn",
        title=f"churn, 200 sessions/s for {minutes} minutes: RSS at the end over RSS of minute 3",
        unit="ratio",
        load="churn",
        job={"minutes": minutes},
        entrants=(NODE,),
        targets=(Target(None, 1.05, at_most=True),) if minutes > 3 else (),
        fresh=True,
        config="[session]\nexpiry_seconds = 30\n",
    )
