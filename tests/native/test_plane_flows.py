"""
The plane carries what it was told to carry, and gives everything else to the owner of the port.

Ports here have no descriptors: what comes is fed, what leaves goes to their owners.
"""

import json
from typing import Any

import pytest

from msgnode.storage.json_lines import MAX_HELD
from msgnode.storage.objects.records import ENTRY, FRAME, MAGIC, Found, scan, unpacked

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

LONGEST = 100_000
ANN, BOB = "runtime://localhost/ann", "runtime://localhost/bob"
TIME = 1_700_000_000_000_000_000
LIMITS = 2**20, 2**20, 60_000_000, 0  # a busy machine must not end rounds


class Cork:
    """
    A cork that notes when it is in.
    """

    def __init__(self) -> None:
        self.entered = self.left = 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *why: Any) -> None:
        self.left += 1


class Ledger:
    """
    A ledger that keeps records in memory.
    """

    def __init__(self) -> None:
        self.records = b""
        self.live = 0
        self.kept: list[tuple[bytes, list[tuple[int, int, int]], int]] = []

    def begin(self) -> int:
        return len(self.records)

    def append(self, records: bytes, live: int) -> None:
        self.records += records
        self.live += live

    def keep_records(self, records: bytes, entries: list[tuple[int, int, int]], micros: int) -> None:
        self.kept.append((records, entries, micros))


class Owner:
    """
    The owner of a port, which notes what it is asked for.
    """

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.bytes = b""
        self.sent = b""
        self.came = self.seen = self.goes_on = 0
        self.owed: list[tuple[bytes, int]] = []
        self.cut_offs: list[bool] = []
        self.at_border = True
        self.room = (10, 10_000)

    def punted(self, data: bytes) -> None:
        self.messages.append(data)

    def foreign(self, data: bytes) -> bool:
        self.bytes += data
        return self.at_border

    def rest(self, data: bytes) -> bool:
        self.sent += data
        return True

    def read_on(self) -> None:
        self.goes_on += 1

    def traffic(self) -> None:
        self.seen += 1

    def heard(self, count: int) -> None:
        self.came += count

    def numbers(self, count: int) -> tuple[int, int, int]:
        return 7, 1 + len(self.owed), 1 + len(self.owed)

    def kept(self, key: int, messages: list[bytes], offsets: list[int]) -> tuple[int, int]:
        self.owed += zip(messages, offsets, strict=True)
        return self.room

    def cut_off(self, is_lost: bool) -> None:
        self.cut_offs.append(is_lost)


class World:
    """
    A plane with a sender and a recipient, both of lines.
    """

    def __init__(self) -> None:
        self.cork, self.ledger = Cork(), Ledger()
        self.failures: list[BaseException] = []
        self.plane = native.Plane(self.cork, self.ledger, self.failures.append)
        self.plane.set_limits(*LIMITS)
        self.ann, self.bob = Owner(), Owner()
        self.from_ann, self.to_bob = self.add(self.ann), self.add(self.bob)
        self.plane.set_ready(self.to_bob, True)

    def add(self, owner: Owner, framing: str = "lines", host: str = "host") -> int:
        port: int = self.plane.add(-1, owner, framing, LONGEST, host)
        self.plane.resume(port)
        return port

    def install(self, *recipients: int, **more: Any) -> None:
        to = recipients or (self.to_bob,)
        assert self.plane.install(self.from_ann, ANN, BOB, "update", to, **more)

    def send(self, *messages: bytes) -> None:
        self.plane.feed(self.from_ann, b"".join(message + b"\n" for message in messages))


@pytest.fixture
def world() -> World:
    return World()


def update(value: Any = "x", **more: Any) -> bytes:
    header = {"id": 1, "type": "update", "from": ANN, "to": BOB, **more, "body": {"value": value}}
    return json.dumps(header, separators=(",", ":")).encode()


def test_decides_nothing_by_itself(world: World):
    """
    Before a flow is installed, each message goes to the owner, in order, with the cork in.
    """
    world.send(update(1), update(2))

    assert world.ann.messages == [update(1), update(2)]
    assert (world.cork.entered, world.cork.left) == (1, 1)


def test_carries_a_flow_without_asking(world: World):
    """
    The messages of a flow reach the recipient, and nobody in Python is asked.
    """
    world.install()

    world.send(update(1), update(2))

    assert world.bob.sent == update(1) + b"\n" + update(2) + b"\n"
    assert world.ann.messages == []
    assert world.cork.entered == 0


def test_counts_what_it_carries_and_why_it_does_not(world: World):
    """
    Messages, bytes and reasons are counted once, and then taken.
    """
    world.install()
    world.send(update(), update(receipt=True))

    counts = world.plane.take_counts()

    assert (counts["received"], counts["sent"]) == (1, 1)
    assert (counts["received_bytes"], counts["sent_bytes"]) == (len(update()),) * 2
    assert sum(counts["handed_over"]) == 1
    assert {why: count for why, count in counts["punted"].items() if count} == {"header": 1}
    assert world.plane.take_counts()["received"] == 0


@pytest.mark.parametrize(
    "change", ["change", "change_all", "above", "renew", "other", "unready", "block", "remove"]
)
def test_a_change_sends_the_next_message_to_python(world: World, change: str):
    """
    Whatever a decision depends on, the first message after its change is decided again.
    """
    world.install()
    plane = world.plane
    {
        "change": lambda: plane.change(BOB),
        "change_all": plane.change_all,
        "above": lambda: plane.change_name("runtime://localhost"),
        "renew": lambda: plane.renew(world.from_ann),
        "other": lambda: plane.renew(world.to_bob),
        "unready": lambda: plane.set_ready(world.to_bob, False),
        "block": lambda: plane.block(world.from_ann),
        "remove": lambda: plane.remove(world.to_bob),
    }[change]()

    world.send(update())

    assert world.ann.messages == [update()]
    assert world.bob.sent == b""


def test_a_flow_is_for_one_type(world: World):
    """
    A message of another type, which a policy might refuse, is decided on by itself.
    """
    world.install()

    world.send(update().replace(b'"update"', b'"delete"'))

    assert len(world.ann.messages) == 1


def test_hands_over_an_awaited_response(world: World):
    """
    A response that the node itself waits for is Python's; another with another id is carried.
    """
    world.plane.install(world.from_ann, ANN, BOB, "response", [world.to_bob])
    first, second = (
        update().replace(b'"update"', b'"response"').replace(b":1,", b":%d," % id) for id in (1, 2)
    )
    world.plane.await_response(BOB, 1)
    world.plane.await_response(BOB, "2")

    world.send(first, second)

    assert world.ann.messages == [first]
    assert world.bob.sent == second + b"\n"


def test_refuses_body_keys_that_others_set(world: World):
    """
    Where the node says who a sender is, a body that says so by itself is Python's, however it is spelt.
    """
    world.install(refused=["assertedIdentity"])
    plain, claimed, spelt = (
        update().replace(b'"value"', key)
        for key in (b'"other"', b'"assertedIdentity"', b'"assertedIdentit\\u00e9"')
    )

    world.send(plain, claimed, spelt)

    assert world.ann.messages == [claimed, spelt]


def test_puts_a_member_first_into_the_body(world: World):
    """
    A mark that the policies put into each body is put there natively.
    """
    world.install(member=b'"auth":true')

    world.send(update())

    assert world.bob.sent == update().replace(b'{"value"', b'{"auth":true,"value"') + b"\n"


def test_draws_from_rate_limits(world: World):
    """
    A message that a token bucket has no room for is Python's, and costs nothing.
    """
    world.plane.stop_clock(0.0)
    bucket = world.plane.add_bucket(2, 0)
    world.install(buckets=[bucket])

    world.send(update(1), update(2), update(3))

    assert world.ann.messages == [update(3)]
    assert not world.plane.draw([bucket], 1)


def test_draws_by_the_same_clock_as_python(world: World):
    """
    What Python has drawn from a token bucket is gone for the messages of flows, too.
    """
    bucket = world.plane.add_bucket(0, 1)
    world.install(buckets=[bucket])
    assert world.plane.draw([bucket], 1_000_000)

    world.send(update())

    assert world.ann.messages == [update()]
    assert not world.plane.draw([bucket], 1)


def test_carries_requests_and_responses(world: World):
    """
    A transaction is written to the traffic log; priority and time to live do not matter to what goes at once.
    """
    world.install(line=("node", ANN, "line", ""))
    traced = update(transaction="t-1", priority=7, ttl=60.5, bulk=False)

    world.send(traced, update(transaction=-3), update(transaction=None))

    _, ((_, lines),) = world.plane.take_log()
    assert world.bob.sent == traced + b"\n" + update(transaction=-3) + b"\n"
    assert [json.loads(line)["transaction"] for line in lines.splitlines()] == ["t-1", -3]
    assert world.ann.messages == [update(transaction=None)]


def test_leaves_the_permit_to_python_that_is_written_down(world: World):
    """
    Of permits, each so manieth is written to the decision log; without a line for it the message is Python's,
    and counted there.
    """
    world.plane.set_sample_share(0.5)
    world.install(samples=1)

    world.send(update(1), update(2))

    assert world.ann.messages == [update(2)]
    assert world.plane.is_sample_due()


def test_writes_the_permit_of_the_sample(world: World):
    """
    A permit that has a line is written to the decision log, with its time and id, and is not left to Python.
    """
    world.plane.set_sample_share(0.5)
    world.install(samples=1, permit_line=(b'{"time":', b',"type":"update"', b',"from":"a"}\n'))
    assert world.plane.log_decision(TIME, b"{}") == 1

    world.send(*(update(id=id) for id in (1, 2, 3, 4)))

    assert world.ann.messages == []
    assert world.plane.decision_lines() == 3
    lost, count, ((_, python), (_, lines)) = world.plane.take_decision_log()
    assert (lost, count, python) == (0, 3, b"{}\n")
    found = [json.loads(line) for line in lines.splitlines()]
    assert [line["id"] for line in found] == [2, 4]
    assert all(line["time"] > TIME for line in found)
    assert list(found[0]) == ["time", "type", "id", "from"]
    assert world.plane.take_decision_log() == (0, 0, [])


def test_leaves_a_permit_to_python_when_many_lines_wait(world: World):
    """
    Each time that so many lines of the decision log wait, Python writes the next, and all to the disk.
    """
    world.plane.set_sample_share(1.0)
    world.install(samples=1, permit_line=(b'{"time":', b"", b"}\n"))
    for _ in range(MAX_HELD - 2):
        world.plane.log_decision(TIME, b"{}")

    world.send(update(1), update(2))

    assert world.ann.messages == [update(2)]
    assert world.plane.log_decision(TIME, b"{}") == MAX_HELD


def test_writes_no_permit_without_a_decision_log(world: World):
    """
    Where no decision log is written the permits of the sample are only counted.
    """
    world.plane.set_sample_share(0.5)
    world.install(samples=1, permit_line=(b"", b"", b""))

    world.send(update(1), update(2), update(3))

    assert world.ann.messages == []
    assert world.plane.decision_lines() == 0
    assert world.plane.is_sample_due()


def test_counts_decisions_by_rule(world: World):
    """
    What a rule permits is counted though Python does not see it.
    """
    for number in range(3):
        assert world.plane.add_tally() == number
    world.install(tallies=[2])
    world.send(update(1), update(2))

    ((rule, hits, last),) = world.plane.take_tallies()

    assert (rule, hits) == (2, 2)
    assert last > TIME
    assert world.plane.take_tallies() == []


def test_a_binding_above_the_recipient_changes_nothing(world: World):
    """
    A flow is followed on when somebody binds an address above the recipient's, which does not hear what is
    below.
    """
    world.install()
    world.plane.change("runtime://localhost")

    world.send(update())

    assert world.bob.sent == update() + b"\n"


def test_fan_out_ends_the_round(world: World):
    """
    A thousand recipients get each message of one flow; a round ends after so many bytes, the messages that
    are left have their turn in the next rounds, and each recipient gets all, in order.
    """
    owners = [Owner() for _ in range(1000)]
    ports = [world.add(owner) for owner in owners]
    for port in ports:
        world.plane.set_ready(port, True)
    assert world.plane.install(world.from_ann, ANN, BOB, "update", ports)
    messages = [update(number) for number in range(40)]

    world.send(*messages)
    first = owners[0].sent
    rounds = 1
    while world.plane.round():
        rounds += 1

    assert 0 < first.count(b"\n") < 20
    assert rounds > 2
    assert {owner.sent for owner in owners} == {b"".join(message + b"\n" for message in messages)}


def test_fan_out_that_does_not_fit_for_one(world: World):
    """
    If one of many recipients cannot take a message, Python decides about it for all of them.
    """
    carl = Owner()
    to_carl = world.add(carl)
    world.plane.set_ready(to_carl, True, (10, 50))
    assert world.plane.install(world.from_ann, ANN, BOB, "update", [world.to_bob, to_carl])

    world.send(update())

    assert world.ann.messages == [update()]
    assert world.bob.sent == carl.sent == b""


def test_flows_of_a_sender_have_a_limit_of_bytes(world: World):
    """
    A sender whose flows would take more than two megabytes begins again with none.
    """
    recipients = [world.to_bob] * 50_000
    for number in range(3):
        assert world.plane.install(world.from_ann, ANN, f"comm://localhost/{number}", "update", recipients)
    before = world.plane.flows()

    assert world.plane.install(world.from_ann, ANN, BOB, "update", recipients)

    assert (before, world.plane.flows()) == (3, 1)


class FullPlane:
    """
    A plane with no room for one flow more: 31 connections of one host and one of another have two each.
    """

    def __init__(self) -> None:
        self.world = World()
        self.plane = self.world.plane
        self.installed = 0
        self.install(self.world.from_ann)
        self.size = self.plane.flow_bytes()
        self.plane.change_all()
        self.plane.set_flow_limit(64 * self.size)
        for port in [self.world.add(Owner(), host="of many") for _ in range(31)]:
            self.install(port)
            self.install(port)
        self.other = self.world.add(Owner(), host="of one")
        self.of_other = [self.install(self.other), self.install(self.other)]

    def install(self, port: int) -> str:
        self.installed += 1
        to = f"comm://localhost/{self.installed:03}"
        assert self.plane.install(port, ANN, to, "update", [self.world.to_bob])
        return to


def test_the_host_with_most_flows_has_less_where_there_is_no_room():
    """
    Where there is no room for a flow more, the connections with most of the host with most begin again with
    none, until a 16th is free.
    """
    full = FullPlane()
    assert (full.plane.flows(), full.plane.flow_bytes()) == (64, 64 * full.size)

    kept = []
    for port in [full.world.add(Owner()) for _ in range(4)]:
        full.install(port)
        kept.append(full.plane.flows())

    assert kept == [*range(64 - 4 + 1, 64 + 1)]
    assert all(full.plane.has_flow(full.other, ANN, to, "update") for to in full.of_other)


def test_what_is_not_remembered_ends_no_flow():
    """
    A flow that is too large, or that takes the place of the same flow, leaves the others where they are.
    """
    full = FullPlane()
    asked = ANN, full.of_other[0]
    many = [full.world.to_bob] * 1000

    assert not full.plane.install(full.other, *asked, "update", many)
    assert not full.plane.install(full.other, *asked, "t" * 1024, [full.world.to_bob])
    assert full.plane.install(full.other, *asked, "update", [full.world.to_bob])

    assert full.plane.flows() == 64


def test_a_lower_limit_of_flows_holds_at_once():
    """
    When the limit is lowered, as many flows end as have no room any more; a change of everything forgets all.
    """
    full = FullPlane()
    full.plane.set_flow_limit(32 * full.size)

    lowered = full.plane.flows(), full.plane.flow_bytes()
    full.plane.change_all()

    assert lowered == (32, 32 * full.size)
    assert (full.plane.flows(), full.plane.flow_bytes()) == (0, 0)


def test_messages_with_long_addresses_are_left_to_python(world: World):
    """
    A flow whose addresses and type are longer than 1024 bytes together is not remembered.
    """
    assert not world.plane.install(world.from_ann, ANN, BOB, "t" * 1024, [world.to_bob])
    assert world.plane.flows() == 0


def test_a_flow_that_was_found_stale_is_forgotten(world: World):
    """
    A flow that a message finds stale takes no more memory.
    """
    world.install()
    world.plane.change(BOB)

    world.send(update())

    assert (world.ann.messages, world.plane.flows()) == ([update()], 0)


def test_a_connection_whose_owner_fails_on_its_bytes_is_cut_off(world: World):
    """
    An owner that raises when it is given bytes has lost them, so that its connection is aborted.
    """

    def foreign(data: bytes) -> bool:
        raise ValueError("no")

    world.ann.foreign = foreign  # type: ignore[method-assign]

    world.plane.feed(world.from_ann, b"x" * 100_000)

    assert [str(why) for why in world.failures] == ["no"]
    assert world.ann.cut_offs == [False]


def test_flows_take_no_more_bytes_than_they_may(world: World):
    """
    A flow larger than one connection's share is refused, and the bytes of all are counted.
    """
    world.install()
    size = world.plane.flow_bytes()
    assert size > 0
    world.plane.change_all()
    world.send(update())
    assert world.plane.flow_bytes() == 0

    world.plane.set_flow_limit(32 * size - 1)
    assert not world.plane.install(world.from_ann, ANN, BOB, "update", [world.to_bob])
    assert (world.plane.flows(), world.plane.flow_bytes()) == (0, 0)

    world.plane.set_flow_limit(32 * size)
    world.install()
    assert (world.plane.flows(), world.plane.flow_bytes()) == (1, size)


def test_writes_down_what_is_owed_before_it_leaves(world: World):
    """
    For clients that acknowledge, the records are in the ledger and the outboxes have counted, once a round.
    """
    world.plane.set_ready(world.to_bob, True, (10, 10_000))
    world.install(counted=True)

    world.send(update(1), update(2))

    assert world.ann.came == 2
    assert [data for data, _ in world.bob.owed] == [update(1), update(2)]
    assert all(world.ledger.records[at:].startswith(data) for data, at in world.bob.owed)
    assert world.ledger.live == 2 * len(update(1))
    assert world.bob.sent == update(1) + b"\n" + update(2) + b"\n"


def test_a_sender_whose_messages_are_not_counted_is_cut_off(world: World):
    """
    An inbox that fails to count what was carried from its client knows too few: the owner learns of it.
    """
    world.install(counted=True)
    world.ann.heard = None  # type: ignore[method-assign, assignment]

    world.send(update())

    assert world.ann.cut_offs == [True]


def test_sends_nothing_that_could_not_be_written_down(world: World):
    """
    If the ledger or an outbox fails, what was to leave is dropped, and the owner learns that it is lost.
    """
    for failing, name in ((world.ledger, "append"), (world.bob, "numbers"), (world.bob, "kept")):
        world.plane.set_ready(world.to_bob, True, (10, 10_000))
        world.install()
        setattr(failing, name, None)

        world.send(update())

        assert world.bob.cut_offs == [True], name
        delattr(failing, name)
        world.bob.cut_offs.clear()
    assert world.bob.sent == b""
    assert len(world.failures) == 3


def test_shares_the_bytes_of_a_message_to_several(world: World):
    """
    Two outboxes keep one copy of a message that went to both.
    """
    carl = Owner()
    to_carl = world.add(carl)
    for port in (world.to_bob, to_carl):
        world.plane.set_ready(port, True, (10, 10_000))
    assert world.plane.install(world.from_ann, ANN, BOB, "update", [world.to_bob, to_carl])

    world.send(update())

    assert world.bob.owed == carl.owed
    assert world.bob.owed[0][0] is carl.owed[0][0]


def test_leaves_the_last_message_there_is_room_for_to_python(world: World):
    """
    An outbox that the next message fills is Python's: the session waits then.
    """
    world.plane.set_ready(world.to_bob, True, (3, 10_000))
    world.bob.room = (1, 10_000)
    world.install()

    world.send(update(1), update(2), update(3))

    assert world.ann.messages == [update(3)]


def test_holds_no_more_for_a_connection_than_its_bound(world: World):
    """
    When too much is held for a recipient, Python has the next message wait.
    """
    world.plane.set_limits(2 * len(update()) + 10, 2**20, 5000, 0)
    world.install()

    world.send(update(1), update(2), update(3))

    assert world.ann.messages == [update(3)]


def test_logs_what_it_carries_between_pythons_lines(world: World):
    """
    Lines of both are in one order, by hours.
    """
    world.install(line=("node", ANN, "line", "peer"))
    world.plane.log(1, b'{"v":1}')

    world.send(update())

    lines, hours = world.plane.take_log()
    assert lines == 2
    assert hours[0] == (0, b'{"v":1}\n')
    line = json.loads(hours[1][1])
    assert (line["session"], line["id"], line["bytes"], line["outcome"]) == (
        ANN,
        1,
        len(update()),
        "delivered",
    )
    assert world.plane.take_log() == (0, [])


def test_an_exception_of_an_owner_ends_nothing(world: World):
    """
    What an owner raises is reported, and the next message is served.
    """

    def punted(data: bytes) -> None:
        world.ann.messages.append(data)
        raise ValueError("no")

    world.ann.punted = punted  # type: ignore[method-assign]

    world.send(update(1), update(2))

    assert world.ann.messages == [update(1), update(2)]
    assert [str(why) for why in world.failures] == ["no", "no"]


def test_an_owner_may_call_the_plane(world: World):
    """
    While it is asked, an owner may install flows and take its port away.
    """

    def punted(data: bytes) -> None:
        world.ann.messages.append(data)
        world.install()

    world.ann.punted = punted  # type: ignore[method-assign]

    world.send(update(1), update(2))

    assert world.ann.messages == [update(1)]
    assert world.bob.sent == update(2) + b"\n"

    world.ann.punted = lambda data: world.plane.remove(world.from_ann)  # type: ignore[method-assign]
    world.send(b"x", b"y")
    assert world.bob.sent == update(2) + b"\n"


def test_bytes_that_are_not_for_it_go_to_the_owner_from_the_first_on(world: World):
    """
    Bytes that are no message are the owner's until it says that the stream stands at a border.
    """
    world.install()
    world.ann.at_border = False
    world.send(b"\xff")
    world.send(update(1))
    world.plane.set_border(world.from_ann, True)
    world.send(update(2))

    assert world.ann.bytes == b"\xff\n" + update(1) + b"\n"
    assert world.bob.sent == update(2) + b"\n"


def test_knows_which_flow_it_follows(world: World):
    """
    A flow that holds need not be installed again; one whose recipient is not ready, or whose bucket is gone,
    must.
    """
    asked = world.from_ann, ANN, BOB, "update"
    assert not world.plane.has_flow(*asked)
    bucket = world.plane.add_bucket(2, 0)
    world.install(buckets=[bucket])
    assert world.plane.has_flow(*asked)

    world.plane.set_ready(world.to_bob, False)
    assert not world.plane.has_flow(*asked)
    world.plane.set_ready(world.to_bob, True)
    world.plane.remove_bucket(bucket)

    assert not world.plane.has_flow(*asked)


def test_gives_versions_to_the_messages_of_a_kept_object(world: World):
    """
    The messages of a kept object have its versions, which go on where Python has left off; their records are
    those of the journal, and Python has them before a message leaves or is its own.
    """
    number = world.plane.add_kept("comm://localhost/1")
    world.install(kept=number)
    world.plane.set_version(number, 41, 1000)

    world.send(update(1), update(2), update(3, ttl=2))

    versioned = [update(1)[:-1] + b',"version":42}', update(2)[:-1] + b',"version":43}']
    assert world.bob.sent == b"\n".join(versioned) + b"\n"
    assert world.ann.messages == [update(3, ttl=2)]
    [(records, entries, micros)] = world.ledger.kept
    found = [
        unpacked(records[each.offset + FRAME.size :][: each.length - FRAME.size]) for each in scanned(records)
    ]
    assert [(each.kind, each.version, each.address, each.data) for each in found] == [
        (ENTRY, 42, "comm://localhost/1", versioned[0]),
        (ENTRY, 43, "comm://localhost/1", versioned[1]),
    ]
    assert 1000 < found[0].micros < found[1].micros == micros
    assert sum(length for _, _, length in entries) == len(records)


def test_leaves_a_kept_object_to_python_until_its_version_is_known(world: World):
    """
    Nothing is carried of an object whose version Python has not said, or whose number is given again.
    """
    number = world.plane.add_kept("comm://localhost/1")
    world.install(kept=number)

    world.send(update(1))
    world.plane.set_version(number, 1, 1000)
    world.plane.forget_kept()
    world.send(update(2))

    assert world.ann.messages == [update(1), update(2)]
    assert world.ledger.kept == []


def scanned(records: bytes) -> list[Found]:
    """
    The records as the journal finds them in a segment.
    """
    found = [each for each in scan(MAGIC + records, True) if each is not None]
    return [each._replace(offset=each.offset - len(MAGIC)) for each in found]
