"""
What looks like a token, and what is one: cut out behind a check, carried to others, or written down.
"""

import base64
import json
import time

from attacking.load.clients import Http, encoded, made_token, request
from attacking.scenarios.ground import ALLOCATION, NODE, SM, Ground, attack

KNOWN = '[identity]\nauth = "optional"\ndevices = "devices"\n'
ASSERTED = """
[identity]
message_identity = "refuse"
[[identity.providers]]
domain = "localhost"
issuer = "http://127.0.0.1:9"
audiences = ["msgnode"]
jwks_uri = "http://127.0.0.1:9/keys"
"""
POOL = '[pools.lines]\nscheme = "sip"\npattern = "sip:line{1..5}@localhost"\n'
BOSS = {"userURL": "user://localhost/boss"}


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(each):04x}" for each in text)


@attack(
    "cut-in-a-key",
    "assertedIdentity/mns_...: a key that a cut would turn into the node's own word.",
    config=KNOWN,
)
def key(ground: Ground) -> None:
    victim, liar = ground.line("victim"), ground.line("liar")
    for number, name in enumerate((f"assertedIdentity/{made_token()}", f"{made_token()}/assertedIdentity")):
        ground.refused(liar, request(number, "create", liar.runtime, victim.runtime, {name: BOSS}), 400)
    ground.check(not victim.arrived(), "it arrived")


@attack(
    "half-a-character", "assertedIdentity beside half a surrogate and a number of 5,000 digits.", config=KNOWN
)
def close_reading(ground: Ground) -> None:
    victim, liar = ground.line("victim"), ground.line("liar")
    for number, beside in enumerate(('"\\ud800"', "1" * 5000, '"\\ud800",' + "1" * 5000, "-" + "9" * 5000)):
        for name in ("assertedIdentity", "\\u0061ssertedIdentity"):
            data = (
                f'{{"id":{number},"type":"event","from":"{liar.runtime}","to":"{victim.runtime}",'
                f'"body":{{"x":[{beside}],"{name}":{json.dumps(BOSS)}}}}}'
            )
            liar.send(data.encode())
    victim.socket.settimeout(0.5)
    came = victim.read(0.5)

    ground.check(b"boss" not in came, f"it arrived unvouched: {came[-200:]!r}")
    ground.answered(liar.ask(request(99, "ping", liar.runtime, "mn:/session")), 200)


@attack(
    "cut-in-to",
    "to: domain:/mns_...//msg-node...: a visitor by REST who would subscribe and lease.",
    config=POOL,
)
def to(ground: Ground) -> None:
    http = ground.http()
    token = made_token()
    for prefix in (f"domain:/{token}//msg-node.localhost", f"domain://{token}msg-node.localhost"):
        subscribed = request(1, "subscribe", "", f"{prefix}/sm", {"resources": [ground.topic("taken")]})
        leased = request(
            2, "create", "", f"{prefix}/address-allocation", {"scheme": "sip", "value": {"number": 5}}
        )
        for message in (subscribed, leased):
            ground.answered(http.post("/message?wait=1", message), 400, 403, 404)
    client = ground.line("phone")
    body = {"scheme": "sip", "value": {"number": 5}}

    ground.answered(client.ask(request(3, "create", client.runtime, ALLOCATION, body)), 200)


@attack("tokens-to-peers", "Session tokens in bodies: plain, in escapes, within longer words.")
def peers(ground: Ground) -> None:
    victim, careless = ground.line("victim"), ground.line("careless")
    token = careless.token
    forms = (
        token,
        escaped("mns_") + token[4:],
        "\\u006dns_" + token[4:],
        escaped(token),
        token + "Z",
        f"a{token}é",
    )
    for number, form in enumerate(forms):
        via = f"{careless.runtime}/{form}"
        head = f'"id":{number},"type":"event","from":"{careless.runtime}","to":"{victim.runtime}"'
        careless.send(f'{{{head},"body":{{"via":"{via}"}}}}'.encode())
    came = victim.arrived()

    ground.check(len(came) == len(forms), f"{len(came)} of {len(forms)} arrived")
    for message in came:
        ground.check(token not in json.dumps(message), f"a token reached a peer: number {message['id']}")


@attack("tokens-in-logs", "Tokens in a HEAD's address, and as the type of a message to mn:/session.")
def logs(ground: Ground) -> None:
    client = ground.line("loose")
    ground.http().ask("HEAD", f"/poll?token={client.token}")
    ground.http().ask("GET", f"/poll?token={client.token}&wait=0")
    client.send(request(3, client.token, client.runtime, "mn:/session"))
    client.send(request(4, "read", client.runtime, f"{NODE}/{client.token}"))
    client.send(request(client.token, "create", client.runtime, SM))
    time.sleep(1.5)  # until the log is written

    ground.check(client.token.encode() not in ground.node.traffic(), "a token is in the traffic log")
    ground.check(client.token not in ground.node.log(), "a token is in the node's log")


@attack("forged-assertions", "Identity tokens in messages: forged, foreign, unreadable.", newer=ASSERTED)
def assertions(ground: Ground) -> None:
    victim, liar = ground.line("victim"), ground.line("liar")
    boss = {
        "iss": "http://127.0.0.1:9",
        "aud": "msgnode",
        "sub": "boss",
        "email": "boss@localhost",
        "exp": 4e9,
    }
    number = 0
    for algorithm in ("none", "HS256", "RS256", "XX"):
        for claims in (boss, boss | {"iss": "http://evil.example"}, boss | {"exp": 1}, {}):
            parts = ({"alg": algorithm, "kid": "1"}, claims)
            token = ".".join(base64.urlsafe_b64encode(encoded(part)).decode().rstrip("=") for part in parts)
            packed = base64.b64encode(encoded({"tokenID": f"{token}.AAAA"})).decode()
            for identity in (
                {"assertion": f"{token}."},
                {"access_token": f"{token}.AAAA"},
                {"assertion": packed},
            ):
                number += 1
                message = request(number, "create", liar.runtime, victim.runtime, {"identity": identity})
                ground.refused(liar, message, 400, 401, 403, 503, 504)

    ground.check(not victim.arrived(), "one arrived")


@attack("key-twice", "Headers in which one key stands twice.")
def twice(ground: Ground) -> None:
    client, victim = ground.line("doubling"), ground.line("victim")
    start = '{"body":{"q":1,"q":1,"q":1,"q":1,"z":":::::","body":null}'
    for number, data in enumerate(
        (
            start + ',"id":0,"type":"","from":"f","to":"","to":""}',
            start.replace("::", ":::", 1) + ',"from":":","id":1,"type":"","to":"","to":""}',
            '{"from":":","body":{":::::::":[],":\\"\\u00fc":[{"\\"":-10,"body":null}]},"id":2,"type":"","to":"","to":""}',
            '{"body":{},"id":3,"type":"","to":"","to":"","x\\"body":{}}',
            '{"id":4,"type":"","from":"f","to":"SELF","to":"PEER"}',
            '{"id":5,"type":"","from":"f","to":"SELF","t\\u006f":"PEER"}',
        )
    ):
        named = data.replace("SELF", client.runtime).replace("PEER", victim.runtime)
        ground.refused(client, named.encode(), 400, number=number)

    ground.check(not victim.arrived(), "it arrived")


@attack(
    "forms-of-json", "What other servers choke on: depth, digits, halves of characters, keys by the thousand."
)
def shapes(ground: Ground) -> None:
    client = ground.line("fuzzer")
    deep, digits = ground.size(20_000, 400_000), ground.size(100_000, 4_000_000)
    head = f'{{"id":1,"type":"create","from":"{client.runtime}","to":"{SM}"'
    for data in (
        head + ',"body":{"resources":' + "[" * deep + "]" * deep + "}}",
        head + ',"body":' + '{"a":' * deep + "1" + "}" * deep + "}",
        head + ',"body":{"x":' + "9" * digits + "}}",
        head.replace(":1,", ":" + "9" * 5000 + ",") + "}",
        head + "".join(f',"k{n}":1' for n in range(20_000)) + "}",
        '{"id":"\\ud800","type":"create","from":"\\udfff:","to":"mn:/x"}',
        "[" * deep,
        "\x00\x01",
    ):
        client.send(data.encode())
    http: Http = ground.http()
    ground.answered(http.post("/message", ("[" * deep).encode()), 400)

    ground.answered(client.ask(encoded(request(99, "ping", client.runtime, "mn:/session")), 99), 200)
