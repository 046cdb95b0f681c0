"""
What is bounded one by one, and in sum only if somebody counts: sessions, addresses, files, entries.
"""

import time
from contextlib import suppress

from attacking.load.clients import Closed, Message, encoded, frame, request
from attacking.scenarios.ground import MIB, SM, Broke, Ground, attack

REGISTRY = "domain://registry.localhost"


@attack("sessions", "Sessions from one address, as many as there may be on the node.", memory=128 * MIB)
def sessions(ground: Ground) -> None:
    client = ground.line()
    count = ground.size(5000, 100_000)
    opened, refusal = 0, None
    for first in range(0, count, 500):
        names = [ground.name(f"s{number}") for number in range(first, first + 500)]
        client.send(*[request(1, "open", name, "mn:/session") for name in names])
        answers = [client.receive() for _ in names]
        refusal = next((answer for answer in answers if isinstance(answer, Closed)), None)
        opened += sum(not isinstance(answer, Closed) for answer in answers)
        if refusal is not None:
            ground.answered(refusal, 1013)
            break
    ground.check(refusal is not None and opened <= 5000, f"one address has {opened:,} sessions")
    other = ground.line(host="127.0.2.1")

    other.open(ground.name("elsewhere"))


@attack(
    "unended",
    "200 connections with 8 MB of a line each that does not end; and of frames and bodies.",
    memory=224 * MIB,
)
def unended(ground: Ground) -> None:
    piece = b"x" * ground.size(2_000_000, 8_000_000)
    body = b"POST /poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n" + piece
    for kind, data, count in (
        ("line", b"{" + piece, ground.size(60, 200)),
        ("frame", frame(piece, flags=-0x80), ground.size(20, 50)),  # one that is not the last
        ("body", body, ground.size(20, 50)),
    ):
        for _ in range(count):
            with suppress(OSError):  # closed, or not read from
                wire = (
                    ground.websocket() if kind == "frame" else ground.raw("line" if kind == "line" else "web")
                )
                wire.socket.settimeout(1)
                wire.write(data)


@attack(
    "long-addresses",
    "100,000 subscriptions of 2 KB by one session.",
    memory=192 * MIB,
    lowered="[limits]\nstate_bytes_per_session = 10_000_000\n",
)
def addresses(ground: Ground) -> None:
    client = ground.line("collector")
    count = 0
    for first in range(0, ground.size(10_000, 99_000), 400):
        body = {"resources": [f"comm://localhost/{n}/".ljust(2000, "x") for n in range(first, first + 400)]}
        answer = client.ask(request(first, "subscribe", client.runtime, SM, body))
        if isinstance(answer, Closed) or answer["body"]["code"] != 200:
            ground.answered(answer, 429)
            break
        count += 400
    else:
        raise Broke(f"one session has {count:,} addresses of 2 KB")

    ground.answered(client.subscribe(ground.topic("x")), 200, 429)


@attack(
    "registry", "Descriptors of 7 MB for the embedded registry; and small ones without end.", memory=160 * MIB
)
def registry(ground: Ground) -> None:
    client = ground.line("registrar")

    def entry(number: int, size: int) -> Message | Closed:
        value = {
            "url": f"hyperty://localhost/{ground.host}-{number}",
            "user": "user://localhost/registrar",
            "descriptor": "x" * size,
            "runtime": client.runtime,
        }
        return client.ask(request(number, "create", client.runtime, REGISTRY, {"value": value}))

    for number in range(ground.size(2, 30)):
        ground.answered(entry(number, 7_000_000), 413)
    for number in range(ground.size(350, 2000)):
        answer = entry(1000 + number, 60_000)
        if isinstance(answer, Closed) or answer["body"]["code"] != 200:
            ground.answered(answer, 429)
            return
    raise Broke("one client's registrations are without bound")


@attack(
    "spool",
    "Messages for 200 sessions that are away, 8 MB for each.",
    memory=448 * MIB,
    lowered="[storage]\nmax_spool_bytes_per_sender = 8_000_000\n",
)
def spool(ground: Ground) -> None:
    most = ground.size(8_000_000, 1 << 30)
    names = []
    for number in range(ground.size(20, 200)):
        client = ground.line(f"away-{number}")
        ground.answered(client.subscribe(ground.topic(f"away-{number}")), 200)
        names.append(client.runtime)
        client.close()
    sender = ground.line("sender")
    before = ground.node.kept()
    unkept = 0
    for _ in range(8):
        for name in names:
            message = request(
                7, "update", sender.runtime, name, {"value": "x" * ground.size(100_000, 1_000_000)}
            )
            sender.send(encoded(message | {"receipt": True}))
        sender.send(request(8, "ping", sender.runtime, "mn:/session"))
        while (came := sender.receive()) and not (isinstance(came, Closed) or came.get("id") == 8):
            unkept += came.get("body", {}).get("code") == 507  # type: ignore[union-attr]
        ground.answered(came, 200)
    time.sleep(0.5)

    ground.bounded("on disk", ground.node.kept() - before, 2 * most + 128 * MIB)
    ground.check(unkept, "no receipt said that anything was not kept")
