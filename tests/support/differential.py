"""
The same conversations with a node with the compiled data plane and with one without: no client notices.

Each step is random, and the same for both; a step is over when nothing happens any more.
"""

import json
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgnode.policy.administration.document_edit import load
from msgnode.protocol.message import decode
from tests.support.fastpath_pair import close, frame, ping
from tests.support.made_policies import document, files, rule, use
from tests.support.plane_world import PlaneWorld, SocketClient

STEPS = 60
SHARE_OF_TLS = 0.3  # of connections
NAMES = [f"runtime://example.org/{name}" for name in "abcd"]
ADDRESSES = [
    *NAMES,
    *(f"{name}/sub" for name in NAMES[:2]),
    *(f"hyperty://example.org/{n}" for n in range(4)),
    "comm://example.org/x",
]
SM = "domain://msg-node.example.org/sm"
LONGEST = 20_000
POLICY = {"permit_sample_rate": 0.3}
LIMITS = {"message_bytes": LONGEST, "partial_seconds": 0}  # that time is not the clock's
NARROW = {"queue_messages": 40, "queue_bytes": 30_000}
TOKEN = re.compile(rb'"runtimeToken":"(mns_[\w-]{43})"')


class Conversation:
    """
    One conversation with both nodes.
    """

    def __init__(self, module: Any, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        # Every other conversation fills outboxes, by short floods: when a full queue's connection is closed
        # depends on how much was read at once.
        self.is_narrow = bool(seed % 2)
        session = NARROW if self.is_narrow else {}
        self.worlds = [
            PlaneWorld(module, directory / name, limits=LIMITS, policy=POLICY, session=session)
            for module, name in ((module, "native"), (None, "python"))
        ]
        self.names: list[str] = []  # by client
        self.id = 0
        self.is_brief = False
        self.usual: dict[str, list[Any]] = {}  # messages by sender, which are sent again
        self.steps: list[str] = []
        self.expected: list[list[Any]] = []

    # -- messages -----------------------------------------------------------------------

    def message(self, name: str) -> Any:
        pick, self.id = self.random.random(), self.id + 1
        if pick < 0.45 and self.usual.get(name) and not self.is_brief:
            return self.random.choice(self.usual[name][-5:])
        if pick < 0.75:
            plain = self.plain(name)
            self.usual.setdefault(name, []).append(plain)
            return plain
        if pick < 0.85:
            kind = self.random.choice(("subscribe", "unsubscribe"))
            resources = self.random.sample(ADDRESSES, self.random.randint(1, 3))
            body: dict[str, Any] = {"resources": resources}
            return {"id": self.id, "type": kind, "from": f"{name}/sm", "to": SM, "body": body}
        return self.unusual(name)

    def plain(self, name: str) -> dict[str, Any]:
        from_ = self.random.choice((name, f"{name}/sub", self.random.choice(ADDRESSES)))
        kind = self.random.choice(("update", "update", "response", "create"))
        body: dict[str, Any] = {"value": "é" * self.random.choice((0, 1, 30))}
        if self.random.random() < 0.05 and not self.is_brief:
            body["filler"] = "x" * self.random.choice((200, 5000, 15_000))
        others = [each for each in self.names if each != name] or NAMES
        to = self.random.choice((self.random.choice(others), self.random.choice(ADDRESSES)))
        message = {"id": self.id % 7, "type": kind, "from": from_, "to": to, "body": body}
        if self.random.random() < 0.3:  # as requests and their responses have
            message["transaction"] = self.random.choice((7, "t-é", "1"))
        if self.random.random() < 0.1:
            message |= {"priority": self.random.randrange(10), "ttl": 60.5, "bulk": True}
        return message

    def unusual(self, name: str) -> Any:
        message = self.plain(name)
        pick = self.random.randrange(12)
        if pick >= 10:
            return self.marked(message)
        if pick == 0:
            return message | {"ttl": 5, "priority": 9}
        if pick == 1:
            return message | {"receipt": True}
        if pick == 2:
            return message | {"log": False}
        if pick == 3:
            return message | {"to": self.random.sample(ADDRESSES, 2)}
        if pick == 4:
            message["body"]["token"] = "mns_" + "x" * 43
            return message
        if pick == 5:
            message["body"]["via"] = "stub"
            return message
        if pick == 6:
            return b'{"id": 5 , "type":"update", "from": "%s", "to":"%s", "body": { "a" : 1 } }' % (
                name.encode(),
                self.random.choice(ADDRESSES).encode(),
            )
        if pick == 7:
            return b'{"id":1,"type":"update","from":"%s","to":"\\u0063omm://example.org/x"}' % name.encode()
        if pick == 8:
            return {"id": 0, "type": "ping", "from": name, "to": "mn:/session"}
        return self.random.choice((b"{}", b"[]", b"nonsense", b'{"id":1,"id":2}', b'{"cmd":"disconnect"}'))

    def marked(self, message: dict[str, Any]) -> Any:
        """
        A message with a body that says what the node says, or has no place for it.
        """
        bodies = (
            {"auth": True},
            {"x": {"auth": 1}},
            {},
            None,
            {"assertedIdentity": {"userURL": "user://x/y"}},
        )
        bodies += ({"identity": {"assertion": "x"}}, {"auth": False, "value": "\\"})
        message["body"] = self.random.choice(bodies)
        if self.random.random() < 0.3:
            del message["body"]
        if self.random.random() < 0.3:
            message = {
                "body": {"value": 1},
                **{key: value for key, value in message.items() if key != "body"},
            }
        if self.random.random() < 0.5:
            return json.dumps(message).encode()  # with spaces, and escapes in place of letters
        return message

    # -- steps --------------------------------------------------------------------------

    def step(self) -> None:
        acts = [self.connect] * 3 + [self.talk] * 20 + [self.flood, self.drop, self.half_close, self.noise]
        acts += [self.wait, self.stall, self.hold, self.expect, self.configure, self.reopen]
        acts += [self.change_policies, self.flood_permitted, self.fail]
        acts += [*[self.resume] * 2, *[self.acknowledge] * 3]
        acts += [self.flood] * (8 if self.is_narrow else 0)
        act = self.random.choice(acts) if len(self.names) > 3 else self.connect
        self.steps.append(act.__name__)
        act()
        self.compare()

    def connect(self) -> None:
        kind, name = self.random.choice(("lines", "websocket")), self.random.choice(NAMES)
        has_tls = self.random.random() < SHARE_OF_TLS
        self.names.append(name)
        opening: dict[str, Any] = {"id": 1, "type": "open", "from": name, "to": "mn:/session"}
        if self.random.random() < 0.4:
            opening["body"] = {"resume": True}
        for world in self.worlds:
            client = world.connect(kind, has_tls)
            client.write(client.encode(opening))
            world.pump()

    def client(self) -> int:
        alive = [n for n, client in enumerate(self.worlds[0].clients) if not client.is_over]
        return self.random.choice(alive or range(len(self.names)))

    def talk(self) -> None:
        number = self.client()
        messages = [self.message(self.names[number]) for _ in range(self.random.randint(1, 8))]
        self.send(number, messages)

    def flood(self) -> None:
        number = self.client()
        message = self.plain(self.names[number])
        if self.is_narrow:
            # One read brings them all, also for who floods itself, and is disconnected in the middle of it.
            message["body"].pop("filler", None)
        self.send(number, [message] * self.random.randint(*((3, 12) if self.is_narrow else (100, 600))))

    def flood_permitted(self) -> None:
        """
        Many messages that policies permit, of which a share is in the decision log.
        """
        for world in self.worlds:
            use(world.node, rule("permit", id="p"))
            world.node.enforcement.set_dry_run(None)
            world.pump()
        self.flood()

    def send(self, number: int, messages: list[Any]) -> None:
        cuts = [self.random.random() for _ in range(self.random.choice((0, 0, 1, 2)))]
        for world in self.worlds:
            client = world.clients[number]
            data, at = client.encode(*messages), 0
            for cut in [*sorted(int(len(data) * cut) for cut in cuts), len(data)]:
                client.write(data[at:cut])
                world.pump()
                at = cut

    def resume(self) -> None:
        """
        A client comes back with its token, on a new connection, and has some of the messages it was sent.
        """
        known = [n for n, client in enumerate(self.worlds[0].clients) if TOKEN.search(client.came)]
        if not known:
            return
        number, kind = self.random.choice(known), self.random.choice(("lines", "websocket"))
        name, share = self.names[number], self.random.random()
        has_tls = self.random.random() < SHARE_OF_TLS
        self.names.append(name)
        is_known, is_sent_again = self.random.random() < 0.9, self.random.random() < 0.5
        again = [self.plain(name) for _ in range(self.random.randint(1, 5))]
        for world in self.worlds:
            token = TOKEN.findall(world.clients[number].came)[-1].decode()
            epoch, received = world.resume_point(name, share)
            body = {"resume": {"epoch": epoch if is_known else "other", "received": received}}
            client = world.connect(kind, has_tls)
            opening = {"id": 1, "type": "re-open", "from": f"{name}/{token}", "to": "mn:/session"}
            client.write(client.encode(opening | {"body": body}))
            world.pump()
            if is_sent_again:
                client.write(client.encode(*again))
                world.pump()

    def acknowledge(self) -> None:
        """
        A client acknowledges some of what it was sent.
        """
        number, share = self.client(), self.random.random()
        for world in self.worlds:
            client = world.clients[number]
            _, received = world.resume_point(self.names[number], share)
            ack = {"id": 0, "type": "ack", "from": "", "to": "mn:/session", "body": {"received": received}}
            client.write(client.encode(ack))
            world.pump()

    def fail(self) -> None:
        """
        The disk is full for a while, in which one read brings little: the write that fails first is the same.
        """
        for world in self.worlds:
            world.disk.full = True
        self.is_brief = True
        for _ in range(2):
            self.talk()
        self.is_brief = False
        for world in self.worlds:
            world.disk.full = False
            world.reactor.advance(2)
            world.node.settle()
            world.pump()

    def drop(self) -> None:
        number = self.client()
        for world in self.worlds:
            world.clients[number].close()
            world.pump()

    def half_close(self) -> None:
        number = self.client()
        part = self.message(self.names[number])
        for world in self.worlds:
            client = world.clients[number]
            client.write(client.encode(part)[:-3])
            world.pump()
            if client.socket.fileno() >= 0:
                with suppress(OSError):
                    client.socket.shutdown(1)
            world.pump()

    def noise(self) -> None:
        number, pick = self.client(), self.random.randrange(7)
        text = (
            b'{"id":1,"type":"update","from":"%s","to":"comm://example.org/x"}' % self.names[number].encode()
        )
        for world in self.worlds:
            client = world.clients[number]
            client.write(self._noise(client, text, pick))
            world.pump()

    @staticmethod
    def _noise(client: SocketClient, text: bytes, pick: int) -> bytes:
        if client.kind == "lines":
            return (b"\xff\xfe\n", b"\n\r\n", b"x" * (LONGEST + 5) + b"\n" + text + b"\n", text[:9])[pick % 4]
        whole = frame(text[:30], first=0x01) + ping() + frame(text[30:], first=0x80)
        unmasked = frame(text, mask=None)
        return (
            whole,
            ping() + frame(text),
            frame(b"\xff"),
            frame(b"x", first=0x82),
            close(),
            unmasked,
            text,
        )[pick]

    def wait(self) -> None:
        seconds = self.random.choice((0.5, 3, 20, 70))
        for world in self.worlds:
            world.reactor.advance(seconds)
            world.pump()

    def stall(self) -> None:
        """
        The transport of a client takes nothing for a while.
        """
        number, sender = self.client(), self.client()
        messages = [self.plain(self.names[sender]) for _ in range(5)]
        stalled = [world.clients[number].protocol.transport for world in self.worlds]
        for world, transport in zip(self.worlds, stalled, strict=True):
            if transport.producer is not None and transport.connected:
                transport.producer.pauseProducing()
            world.pump()
        self.send(sender, messages)
        for world, transport in zip(self.worlds, stalled, strict=True):
            if transport.producer is not None and transport.connected:
                transport.producer.resumeProducing()
            world.pump()

    def hold(self) -> None:
        """
        What a client sends waits for a while: an earlier message of it is being worked on.
        """
        number, works = self.client(), []
        for world in self.worlds:
            works.append(world.node.input_order.hold(world.clients[number].protocol))
            world.pump()
        self.send(number, [self.message(self.names[number]) for _ in range(5)])
        for world, work in zip(self.worlds, works, strict=True):
            world.node.input_order.release(work)
            world.pump()

    def expect(self) -> None:
        """
        A connector waits for a response outside of all sessions, or waits no longer.
        """
        if self.expected:
            for stop in self.expected.pop():
                stop()
            return
        address, stops = self.random.choice(ADDRESSES), []
        for world in self.worlds:
            request = b'{"id":3,"type":"read","from":"%s","to":"x"}' % address.encode()
            session = world.node.sessions.get(self.names[0])
            taken = world.taken
            stops.append(
                world.node.expected_responses.expect(
                    decode(request, None), session, lambda message, taken=taken: taken.append(message.data)
                )
            )
        self.expected.append(stops)

    def configure(self) -> None:
        """
        The configuration is another.
        """
        rate, check = self.random.choice((*[0] * 7, 50, 100)), self.random.choice((*["off"] * 5, "refuse"))
        longest = self.random.choice((LONGEST, LONGEST, 3000))
        bytes_, auth = self.random.choice((0, 0, 50_000)), self.random.choice(("none", "none", "optional"))
        mark, share = self.random.choice((True, True, False)), self.random.choice((0.0, 0.01, 0.3, 0.3, 1.0))
        for world in self.worlds:
            world.node.config.limits.session_rate_messages = rate
            world.node.config.limits.message_bytes = longest
            world.node.config.session.from_check = check
            world.node.config.limits.ip_rate_bytes = bytes_
            world.node.config.identity.auth = auth
            world.node.config.policy.mark_auth = mark
            world.node.config.policy.permit_sample_rate = share
            world.node.apply()
            world.lines.apply()
            world.web.apply()
            world.pump()

    def change_policies(self) -> None:
        """
        Other policies become live, or are tried beside them.
        """
        choice = self.random.choice
        rules = [
            rule("deny", {"msgFrom": {"equals": choice(ADDRESSES)}, "msgTo": {"equals": choice(ADDRESSES)}}),
            rule("permit", choice(({}, {"actionType": {"in": ["update", "response"]}})), id="p"),
        ]
        unusual = (
            {"body.value": {"equals": ""}},
            {"msgSize": {"moreThan": 200}},
            {"direction": {"equals": "out"}},
        )
        if self.random.random() < 0.3:
            rules.append(rule("deny", choice(unusual), id="u"))
        if self.random.random() < 0.3:
            rules[1]["obligations"] = choice(({"maxBytes": 150}, {"set": {"body.value": "set"}}))
        tried = choice((None, None, None, None, load(files(document(*rules)))))
        for world in self.worlds:
            use(world.node, *rules)
            world.node.enforcement.set_dry_run(tried)
            world.pump()

    def reopen(self) -> None:
        """
        A client opens a session of another name on the connection it has, between two messages.
        """
        number, name = self.client(), self.random.choice(NAMES)
        opening = {"id": 1, "type": "open", "from": name, "to": "mn:/session"}
        before = self.plain(self.names[number])
        self.names[number] = name
        self.send(number, [before, before, opening, before, self.plain(name)])

    # -- what must be true --------------------------------------------------------------

    def compare(self) -> None:
        ours, theirs = self.worlds
        for number, (mine, other) in enumerate(zip(ours.got(), theirs.got(), strict=True)):
            self.same(f"what client {number} got", mine, other)
        self.same("responses that were awaited", ours.taken, theirs.taken)
        self.same("counts of sessions", ours.counts_of_sessions(), theirs.counts_of_sessions())
        self.same("counts", ours.counted(), theirs.counted())
        self.same("decisions", ours.decided(), theirs.decided())

    def same(self, what: str, native: Any, python: Any) -> None:
        if native != python:
            raise AssertionError(f"{what} after {self.steps}: {_first_difference(native, python)}")

    def end(self) -> int:
        """
        Compare the logs as well; how many messages the plane carried.
        """
        ours, theirs = self.worlds
        self.same("spool", ours.spooled(), theirs.spooled())
        for world in self.worlds:
            world.end()
        # Two connections may be read in any order.
        for key in ("peer", "session"):
            self.same("traffic log", _by(key, ours.logged()), _by(key, theirs.logged()))
        return ours.plane.carried


def _by(key: str, lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        found.setdefault(line.get(key, ""), []).append(line)
    return found if key == "peer" else {one: sorted(found[one], key=str) for one in found}


def _first_difference(native: Any, python: Any) -> str:
    """
    The part of two values in which they differ first.
    """
    if isinstance(native, dict) and isinstance(python, dict):
        parts = [(native.get(key), python.get(key), key) for key in [*native, *python]]
    elif isinstance(native, list | tuple) and isinstance(python, list | tuple) and len(native) == len(python):
        parts = [(one, other, number) for number, (one, other) in enumerate(zip(native, python, strict=True))]
    else:
        return f"natively {native!r:.2000}, in Python {python!r:.2000}"
    one, other, where = next(part for part in parts if part[0] != part[1])
    return f"[{where!r}] {_first_difference(one, other)}"


def converse(module: Any, seed: int, directory: Path) -> int:
    """
    Hold the conversation of this seed with both nodes; how many messages the plane carried.

    AssertionError, with the steps so far, if there is a difference.
    """
    conversation = Conversation(module, seed, directory)
    for _ in range(STEPS):
        conversation.step()
    return conversation.end()
