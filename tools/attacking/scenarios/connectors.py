"""
What the connectors must bear: long POSTs, compressed bombs, hidden requests, foreign pages and hosts.
"""

import json
import time
import zlib
from contextlib import suppress

from attacking.load.clients import COMPRESSED, Closed, Http, encoded, frame, request
from attacking.scenarios.ground import MIB, Broke, Ground, attack

POLL = "/socket.io/?EIO=4&transport=polling"
EVIL = "http://evil.example"


def socket_client(http: Http) -> str:
    """
    A client of Socket.IO by polling: its address.
    """
    greeting = http.ask("GET", POLL).body.decode()
    sid = greeting.partition('"sid":"')[2].partition('"')[0]
    path = f"{POLL}&sid={sid}"
    http.ask("POST", path, b"40")
    return path


def bombs_taken(ground: Ground) -> int:
    """
    How many bombs the node has taken, by its bytes.
    """
    lines = ground.http("admin").ask("GET", "/metrics").body.decode().splitlines()
    (line,) = [line for line in lines if line.startswith("msgnode_bytes_in_total")]
    return int(float(line.split()[1])) // 8_388_000


@attack("packets", "A Socket.IO POST of 16 MB of the smallest packets.", memory=160 * MIB)
def packets(ground: Ground) -> None:
    http = ground.http()
    for packet in (b"3\x1e", b"42[]\x1e"):
        path = socket_client(http)
        body = (packet * (ground.size(200_000, 16 * MIB) // len(packet)))[:-1]
        ground.answered(http.ask("POST", path, body), 413)
    path = socket_client(http)
    within = b"\x1e".join(
        [b"42" + encoded(["message", encoded(request(1, "x", "a:1", "b:1")).decode()])] * 9999
    )

    ground.answered(http.ask("POST", path, within), 200)


@attack(
    "poll-array",
    "A POST to /poll with an array of 410,000 messages; and the longest that is taken.",
    memory=160 * MIB,
)
def array(ground: Ground) -> None:
    http = ground.http()
    runtime = ground.name("poster")
    opened = http.post("/poll", request(1, "open", runtime, "mn:/session"))
    token = opened.json()["messages"][0]["body"]["runtimeToken"]
    small = b'{"id":1,"type":"a","from":"b:","to":"c:"}'

    ground.answered(
        http.post("/poll", b"[" + b",".join([small] * ground.size(12_000, 390_000)) + b"]", token), 413
    )
    taken = http.post("/poll?seq=1", b"[" + b",".join([small] * 10_000) + b"]", token)

    ground.answered(taken, 202)
    ground.check(taken.json() == {"accepted": 10_000, "received": 10_000}, f"it took {taken.body!r}")


@attack("one-read", "Lines and frames of a few bytes, as many as one read may bring, without end.")
def one_read(ground: Ground) -> None:
    small = b'{"id":1,"type":"a","from":"b:","to":"c:"}'
    line, frames = ground.line("liner"), ground.websocket("framer")
    for _ in range(ground.size(5, 50)):
        line.send(*[small] * 5000)
        frames.send(*[small] * 5000)

    ground.answered(line.ask(request(9, "ping", line.runtime, "mn:/session")), 200)
    ground.answered(frames.ask(request(9, "ping", frames.runtime, "mn:/session")), 200)


@attack(
    "deflate-bombs",
    "200 frames of 8 KB that become 8 MB each.",
    memory=160 * MIB,
    config="[websocket]\ncompress_above_bytes = 1\n",
)
def bombs(ground: Ground) -> None:
    bomber = ground.websocket(deflate=True)
    if not bomber.deflates:
        raise Broke("compression was not agreed")
    bomber.write(frame(encoded(request("open", "open", ground.name("bomber"), "mn:/session"))))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    message = encoded(
        request(1, "update", ground.name("bomber"), ground.topic("none"), {"value": "x" * 8_388_000})
    )
    bomb = (packer.compress(message) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    bomber.receive()
    before, began = bombs_taken(ground), time.monotonic()
    bomber.write(frame(bomb, flags=COMPRESSED) * ground.size(20, 200))
    time.sleep(ground.size(1, 10))
    came = bombs_taken(ground) - before
    took = time.monotonic() - began

    ground.check(came <= 2 * took + 6, f"{came} of them were taken in {took:.0f} s")


@attack("hidden-requests", "Requests in the bodies of polls whose header only some servers would take.")
def hidden(ground: Ground) -> None:
    http = ground.http()
    victim = ground.line("victim")
    inner = encoded(request(7, "event", "comm://evil/1", victim.runtime))
    smuggled = b"POST /message?wait=0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (
        len(inner),
        inner,
    )
    heads = (
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding\t: chunked",
        b"X: y\rTransfer-Encoding: chunked",
        b"X: y\nTransfer-Encoding: chunked",
        b"Content-Length : %d" % len(smuggled),
        b"Content-Length: %d" % len(smuggled) + b"\r\nContent-Length : 0",
        b"Transfer-Encoding chunked",
        b"X: \x00y",
    )
    for head in heads:
        path = socket_client(http)
        wire = ground.raw()
        wire.write(b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % (path.encode(), head))
        time.sleep(0.05)  # so that the node reads the head alone
        wire.write(smuggled)
        answers = wire.read(0.3)
        ground.check(answers.count(b"HTTP/1.1 ") <= 1, f"{head!r}: two answers")
        wire.close()

    ground.check(not victim.arrived(), "a hidden request was carried out")


@attack("foreign-pages", "A page of another origin that posts to /message, as forms may.")
def pages(ground: Ground) -> None:
    victim = ground.line("victim")
    message = request(7, "event", "", victim.runtime)
    for origin in (
        EVIL,
        "null",
        "https://localhost.evil.example",
        f"http://localhost:{ground.node.ports['admin']}",
    ):
        for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
            answer = ground.http().post("/message?wait=0", message, Origin=origin, Content_Type=kind)
            ground.answered(answer, 403)

    ground.check(not victim.arrived(), "a forged message arrived")


@attack("foreign-hosts", "Requests to the admin listener by a name that a page made lead here.")
def hosts(ground: Ground) -> None:
    for host in ("evil.example", "evil.example:9092", "localhost.evil.example", "127.0.0.1.evil.example"):
        for path in ("/metrics", "/policies", "/api/v1/node"):
            answer = ground.http("admin").ask("GET", path, headers=[("Host", host)])
            ground.answered(answer, 421)
        for path in ("/live", "/live?node=all"):
            answer = ground.http("admin").ask("GET", path, headers=[("Host", host)])
            said = ground.answered(answer, 200)
            ground.check(
                set(json.loads(said)) == {"status", "version"}, f"{path} says to a page: {said[:200]}"
            )

    ground.answered(ground.http("admin").ask("GET", "/metrics", headers=[("Host", "localhost")]), 200)


@attack("said-hosts", "Requests that say whom they were forwarded for, each somebody else.")
def forwarded(ground: Ground) -> None:
    for number in range(ground.size(100, 2000)):
        path = "/message?wait=0"
        ground.http().post(path, request(number, "x", "", "c:1"), X_Forwarded_For=f"10.{number % 250}.2.3")
    said = ground.node.log().count("orwarded")

    ground.check(said <= 2, f"the node said so {said} times")


@attack("connections", "More connections than one address may have, and none says anything.")
def connections(ground: Ground) -> None:
    silent = [ground.line() for _ in range(ground.size(1150, 3000))]
    for one in silent[-5:]:
        with suppress(ConnectionError):  # unheard
            ground.check(isinstance(one.receive(), Closed), "one more than there may be was not closed")
    ground.line("elsewhere", host="127.0.2.2")


@attack("babble", "Bytes that are nothing, at every door.")
def babble(ground: Ground) -> None:
    noise = bytes(n * 7919 % 256 for n in range(20_000))
    for port in ("web", "line", "admin"):
        for data in (
            noise,
            b"\r\n" * 5000,
            b"GET " + b"/" * 100_000,
            b"\x16\x03\x01" + noise,
            b"\xff" * 70_000,
        ):
            wire = ground.raw(port)
            with suppress(OSError):  # it was closed meanwhile
                wire.write(data)
                wire.read(0.05)
            wire.close()
    client = ground.websocket("binary")
    client.write(frame(noise, 2))

    ground.check(isinstance(client.receive(), Closed), "a binary frame was taken")
