"""
One message to very many, and much to one, of whom nobody reads.
"""

from contextlib import suppress

from attacking.load.clients import PING, Connection, encoded, frame, request
from attacking.scenarios.ground import MIB, Ground, attack

LONG = 61_000  # bytes


@attack(
    "list-x-listeners", "60 sessions with 1,000 addresses each, and one 61 KB message to the list of them."
)
def refused(ground: Ground) -> None:
    topics = [ground.topic(f"t{n}") for n in range(1000)]
    for number in range(ground.size(12, 60)):
        hearer = ground.line(f"hearer-{number}", window=4096)
        ground.answered(hearer.subscribe(*topics), 200)
    sender = ground.line("sender")
    body = {"value": "x" * (LONG - len(encoded(topics)))}

    ground.refused(sender, request(7, "create", sender.runtime, topics, body), 413)


@attack(
    "list-x-listeners-within",
    "The most of that which is carried: 9 sessions that do not read.",
    memory=192 * MIB,
)
def carried(ground: Ground) -> None:
    topics = [ground.topic(f"t{n}") for n in range(1000)]
    hearers = [ground.line(f"hearer-{number}", window=4096) for number in range(9)]
    for hearer in hearers:
        ground.answered(hearer.subscribe(*topics), 200)
    sender = ground.line("sender")
    body = {"value": "x" * (ground.size(10_000, LONG - len(encoded(topics))))}
    sender.send(request(7, "update", sender.runtime, topics, body))

    ground.answered(sender.ask(request(8, "ping", sender.runtime, "mn:/session")), 200)


@attack(
    "unread-floods",
    "40 sessions that are sent 20 MB each, every one its own, and read none of it.",
    memory=448 * MIB,
)
def floods(ground: Ground) -> None:
    sleepers = [ground.line(f"sleeper-{number}", window=4096) for number in range(ground.size(8, 40))]
    sender = ground.line("sender")
    for number in range(ground.size(60, 200)):
        for sleeper in sleepers:
            sender.send(request(number, "update", sender.runtime, sleeper.runtime, {"value": "x" * 100_000}))

    ground.answered(sender.ask(request(8, "ping", sender.runtime, "mn:/session")), 200)


@attack(
    "unread-answers",
    "Pings, garbage, requests and polls by the hundred thousand, whose answers nobody reads.",
    memory=64 * MIB,
)
def answers(ground: Ground) -> None:
    size = ground.size(2_000_000, 200_000_000)
    get = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ping = encoded(request(8, "ping", ground.name("deaf"), "mn:/session"))
    for kind, data in (
        ("ws", frame(b"x" * 125, PING)),
        ("ws", frame(ping)),
        ("ws", frame(b'{"id":1,"type":"create"}')),
        ("line", ping + b"\n"),
        ("line", b"{\n"),
        ("http", get),
        ("http", get.replace(b"/live", b"/nothing/here")),
        ("http", b"POST /message HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"),
    ):
        client: Connection
        if kind == "ws":
            client = ground.websocket("deaf", window=4096)
        elif kind == "line":
            client = ground.line("deaf", window=4096)
        else:
            client = ground.raw(window=4096)
        client.socket.settimeout(2)
        with suppress(OSError):  # it is not read from any more, or closed
            client.write(data * (size // len(data)))
