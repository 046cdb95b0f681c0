"""
The two data planes side by side: the node with the compiled one, gathering or not, the node in Python
alone, and nats-server.

What a table of these rows says is in docs/performance.md.
"""

from dataclasses import replace

from benchmark.peers.servers import DEVICE_TOKEN, DEVICES, TLS
from benchmark.scenarios.catalogue import SIZES, Entrant, Scenario, Target

COMPILED, AT_ONCE, PYTHON, NATS = "compiled", "compiled, no gather", "Python alone", "nats-server"
PAIRS = (("100 B", 8, 64), ("100 B", 1, 1), ("100 B", 200, 1), ("10 kB", 4, 16))
WANTED = {("100 B", 8, 64): 1.2, ("100 B", 1, 1): 1.0, ("100 B", 200, 1): 1.0, ("10 kB", 4, 16): 1.2}
USUAL = {"size": 100, "pairs": 8, "window": 64}


def nodes(wire: str = "websocket", **differs: object) -> tuple[Entrant, ...]:
    """
    The node three times: with the compiled plane, as it is and without gathering, and in Python alone.
    """
    kinds = (
        (COMPILED, "native = true\n", "native"),
        (AT_ONCE, "native = true\ngather = false\n", "native"),
        (PYTHON, "native = false\n", "python"),
    )
    return tuple(
        replace(Entrant(label, "msgnode", wire, config=f"[performance]\n{keys}", plane=plane), **differs)  # type: ignore[arg-type]
        for label, keys, plane in kinds
    )


def _pairs(size: str, pairs: int, window: int, spaces: bool) -> Scenario:
    shape = f"{size.replace(' ', '')}-{pairs}-{window}"
    return Scenario(
        name=f"planes-{shape}{'-spaces' if spaces else ''}",
        title=f"{size}, {pairs} pair{'s' * (pairs > 1)}, window {window}, "
        f"{'JSON with spaces' if spaces else 'compact JSON'}",
        unit="messages/s",
        load="pairs",
        job={"size": SIZES[size], "pairs": pairs, "window": window, "spaces": spaces},
        entrants=(*nodes(), Entrant(NATS, "nats")),
        targets=(Target(NATS, WANTED[size, pairs, window]),),
        quick=pairs < 200,
    )


FANOUT = Scenario(
    name="planes-fanout-1000",
    title="fan-out to 1,000, 100 B, 16 publications in flight",
    unit="deliveries/s",
    load="fanout",
    job={"size": 100, "subscribers": 1000, "window": 16},
    entrants=(*nodes(), Entrant(NATS, "nats")),
    targets=(Target(NATS, 1.5),),
)

RESUME = Scenario(
    name="planes-resume",
    title="acknowledged resume, 100 B, 8 pairs, window 64",
    unit="messages/s",
    load="pairs",
    job=USUAL,
    entrants=(*nodes(job={"resume": True}), replace(nodes()[0], label="compiled, no resume")),
    targets=(Target("compiled, no resume", 0.55), Target(PYTHON, 3.0)),
)

POLICIES = Scenario(
    name="planes-policies",
    title="10 policies whose decisions are remembered, 100 B, 8 pairs, window 64",
    unit="messages/s",
    load="pairs",
    job=USUAL,
    entrants=(*nodes(policies=10), replace(nodes()[0], label="compiled, no policies")),
    targets=(Target("compiled, no policies", 0.8),),
)

LINES = Scenario(
    name="planes-lines-200",
    title="TCP lines, 100 B, 200 pairs, window 1",
    unit="messages/s",
    load="pairs",
    job={"size": 100, "pairs": 200, "window": 1},
    entrants=(*nodes("line"), Entrant(NATS, "nats", "line")),
    targets=(Target(PYTHON, 3.0),),
)

AUTH = Scenario(
    name="planes-auth",
    title='authenticated devices (`auth = "required"`), 100 B, 8 pairs, window 64',
    unit="messages/s",
    load="pairs",
    job=USUAL | {"login": DEVICE_TOKEN},
    entrants=nodes(),
    config=DEVICES,
)


def _transport(name: str, title: str, wire: str, config: str = "") -> Scenario:
    return Scenario(
        name=f"planes-{name}",
        title=f"{title}, 100 B, 8 pairs, window 64",
        unit="messages/s",
        load="pairs",
        job=USUAL,
        entrants=nodes(wire),
        config=config,
    )


TRANSPORTS = (
    _transport("tls", "WebSocket with the node's own TLS", "tls", TLS),
    _transport("proxied-tls", "WebSocket, a proxy terminates TLS", "proxied"),
    _transport("deflate", "WebSocket with deflate", "deflate", "[websocket]\ncompress_above_bytes = 100\n"),
    Scenario(
        name="planes-socketio",
        title="Socket.IO 1 by WebSocket, 100 B, 8 clients that write to themselves, window 64",
        unit="messages/s",
        load="socketio",
        job={"size": 100, "clients": 8, "window": 64},
        entrants=nodes(),
    ),
    Scenario(
        name="planes-polling",
        title="long polling, 100 B, 8 pairs, window 64",
        unit="messages/s",
        load="polling",
        job=USUAL,
        entrants=nodes("poll"),
    ),
)

MEMORY = tuple(
    Scenario(
        name=f"planes-memory-{name}",
        title=f"memory of an idle {name} connection, of 2,000",
        unit="KiB RSS",
        load="memory",
        job={"sessions": 2000},
        entrants=tuple(entrant for entrant in nodes(wire) if entrant.label != AT_ONCE),
        fresh=True,
    )
    for name, wire in (("WebSocket", "websocket"), ("lines", "line"))
)

PLANES = (
    *(_pairs(*shape, spaces=spaces) for shape in PAIRS for spaces in (False, True)),
    FANOUT,
    RESUME,
    POLICIES,
    LINES,
    AUTH,
    *TRANSPORTS,
    *MEMORY,
)
