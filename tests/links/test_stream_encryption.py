"""
The keys of streams, and messages that are encrypted from source node to destination node.
"""

import os
from functools import cache

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from twisted.internet.task import Clock

from msgnode.links.overlay.network import NodeKeys
from msgnode.links.stream.safety.encryption import (
    UNWRAPS,
    UNWRAPS_SECONDS,
    Encryption,
    NotReadable,
    TooManyKeys,
    Wrapped,
    key_name,
)
from msgnode.links.stream.safety.node_keys import KeyRing, PrivateKeys
from msgnode.links.wire.stream_header import (
    ENCRYPTED,
    MESSAGE,
    WRAPPED,
    decode,
)
from tests.support.links_stream import FakeNet, StreamNode
from tests.support.links_stream_wire import connected, next_datagram

SECRET = b"the secret of the message" * 10


@cache
def rsa_key(bits: int = 3072) -> RSAPrivateKey:
    return generate_private_key(65537, bits)


def rsa_only() -> PrivateKeys:
    """
    The keys of a node whose streams do not encrypt, and that offers an RSA key.
    """
    return PrivateKeys(os.urandom(16), X25519PrivateKey.generate(), rsa_key(), frozenset())


def no_encryption() -> PrivateKeys:
    return PrivateKeys(os.urandom(16), X25519PrivateKey.generate(), None, frozenset())


def test_a_message_waits_for_the_keys_of_its_destination():
    """
    A message to a node whose advertisement has not come yet is sent when it comes.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1")
    identifier = a.send("mn://b.example/1", b"early")
    net.run(3)
    before = a.reasons(identifier)

    b = StreamNode(net, "mn://b.example/1")
    net.run(1)

    assert before == []
    assert b.payloads == [b"early"]


def test_keys_can_be_rotated_while_messages_are_under_way():
    """
    A datagram under the key before is accepted for a minute.
    """
    net, a, b = connected()
    under_way = next_datagram(net, a, b)

    a.ring.rotate(PrivateKeys.generate())
    net.advertise(a.name, a.ring.current.public)
    net.arrive(under_way)
    net.tap = lambda datagram: datagram
    a.send(b.name, b"under the new key")
    net.run(5)
    last = b.payloads
    net.run(60)
    net.arrive(msgspec.structs.replace(under_way, nonce=0))

    assert last == [b"open", b"payload", b"under the new key"]
    assert b.streams.counts["key"] == 1


def test_a_public_key_that_is_none_does_no_harm():
    """
    An advertisement with a key of low order gives no agreement; messages wait until they are stale.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1")
    net.advertise("mn://b.example/1", NodeKeys(b"s" * 16, bytes(32), b"", frozenset()))
    identifier = a.send("mn://b.example/1", b"x", ttl_millis=5000)

    net.run(10)

    assert a.reasons(identifier) == ["stale"]


def test_a_weak_rsa_key_is_refused():
    """
    Keys below 3,072 bits are not used, neither one's own nor a peer's.
    """
    with pytest.raises(ValueError, match="3072 bits"):
        PrivateKeys(os.urandom(16), X25519PrivateKey.generate(), rsa_key(2048))


# -- encryption -------------------------------------------------------------------------


def flags_sent(net: FakeNet, source: StreamNode) -> set[int]:
    headers = [decode(datagram.header) for datagram in net.sent if datagram.source == source.name]
    return {header.flags for header in headers if header.kind == MESSAGE}


def test_a_message_is_encrypted_if_it_asks():
    """
    A node on the way sees neither the message nor who sent it.
    """
    net, a, b = connected()

    a.send(b.name, SECRET, encrypt=True, identity={"subject": "ann-the-sender"}, compress=False)
    net.run(1)

    assert b.payloads[1:] == [SECRET]
    assert flags_sent(net, a) == {ENCRYPTED}
    seen = b"".join(datagram.payload + datagram.header for datagram in net.sent)
    assert b"secret" not in seen
    assert b"ann-the-sender" not in seen


def test_everything_is_encrypted_if_configuration_says_so():
    """
    With `always`, a message need not ask.
    """
    net, a, b = connected(encrypt=lambda node: "always")

    a.send(b.name, SECRET, compress=False)
    net.run(1)

    assert b.payloads[1:] == [SECRET]
    assert flags_sent(net, a) == {ENCRYPTED}


def test_a_peer_that_offers_rsa_only_gets_a_wrapped_key():
    """
    A message for such a peer is encrypted under a content key, wrapped by RSA-OAEP-256; long ones too.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1")
    b = StreamNode(net, "mn://b.example/1", keys=rsa_only)
    long = os.urandom(100_000)

    a.send(b.name, SECRET, encrypt=True)
    a.send(b.name, long, encrypt=True)
    net.run(2)

    assert b.payloads == [SECRET, long]
    assert flags_sent(net, a) == {WRAPPED}
    assert b"secret" not in b"".join(datagram.payload for datagram in net.sent)


@pytest.mark.parametrize("mode, keys", [("asked", no_encryption), ("never", PrivateKeys.generate)])
def test_a_message_that_cannot_be_encrypted_is_never_sent_in_clear(mode, keys):
    """
    A message that must be encrypted, and cannot be, ends with 502 `no-key`; others to the same node are sent.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1", encrypt=lambda node: mode)
    b = StreamNode(net, "mn://b.example/1", keys=keys)

    early = a.send(b.name, SECRET, encrypt=True)
    clear = a.send(b.name, b"clear")
    net.run(1)
    late = a.send(b.name, SECRET, encrypt=True)
    net.run(1)

    assert [a.outcomes[each][0].code for each in (early, late)] == [502, 502]
    assert [a.reasons(each) for each in (early, late)] == [["no-key"], ["no-key"]]
    assert a.reasons(clear) == ["acknowledged"]
    assert b.payloads == [b"clear"]
    assert b"secret" not in b"".join(datagram.payload for datagram in net.sent)


def test_a_message_that_was_wrapped_for_another_key_is_counted():
    """
    A message under an RSA key that this node does not have any more is dropped, its sender learns that, and
    the stream goes on.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1")
    b = StreamNode(net, "mn://b.example/1", keys=rsa_only)
    a.send(b.name, b"open")
    net.run(1)
    b.ring.current.rsa = None

    wrong = a.send(b.name, SECRET, encrypt=True)
    a.send(b.name, b"next")
    net.run(1)

    assert b.payloads == [b"open", b"next"]
    assert b.streams.counts["unreadable"] == 1
    assert [(each.code, each.reason) for each in a.outcomes[wrong]] == [(502, "no-key")]


def test_a_key_ring_keeps_the_key_before_for_a_minute():
    """
    What is under way under the old key can be read; later it cannot.
    """
    net = FakeNet()
    first, second = PrivateKeys.generate(), PrivateKeys.generate()
    ring = KeyRing(first, net.clock)

    ring.rotate(second)
    at_once = ring.valid()
    net.clock.advance(61)

    assert at_once == [second, first]
    assert ring.valid() == [second]


def wrapped_for(ring, clock, message=SECRET):
    """
    A message under a content key of its own, as a node sends it that uses no key twice.
    """
    return Encryption(KeyRing(PrivateKeys.generate(), clock), clock).wrap(ring.current.public.rsa, message)


def test_a_node_that_uses_no_content_key_twice():
    """
    Only a few content keys of one node are unwrapped in a minute, for that takes milliseconds; those that are
    known, and those of other nodes, are not affected.
    """
    clock = Clock()
    ring = KeyRing(rsa_only(), clock)
    encryption = Encryption(ring, clock)
    first = wrapped_for(ring, clock)
    known = [encryption.unwrap("mn://a.example/1", first)]
    for _ in range(UNWRAPS - 1):
        known.append(encryption.unwrap("mn://a.example/1", wrapped_for(ring, clock)))

    with pytest.raises(TooManyKeys):
        encryption.unwrap("mn://a.example/1", wrapped_for(ring, clock))
    again = encryption.unwrap("mn://a.example/1", first)
    other = encryption.unwrap("mn://a.example/2", wrapped_for(ring, clock))
    clock.advance(UNWRAPS_SECONDS)
    later = encryption.unwrap("mn://a.example/1", wrapped_for(ring, clock))

    assert [*known, again, other, later] == [SECRET] * (UNWRAPS + 3)


def test_wrapped_keys_that_are_garbage_count_too():
    """
    A node that sends garbage in the place of wrapped keys makes this node do no more with its RSA key.
    """
    clock = Clock()
    ring = KeyRing(rsa_only(), clock)
    encryption = Encryption(ring, clock)
    name = key_name(ring.current.public.rsa)
    causes = []

    for _ in range(UNWRAPS + 2):
        garbage = msgspec.msgpack.encode(Wrapped(name, os.urandom(384), bytes(12), bytes(32)))
        with pytest.raises(NotReadable) as raised:
            encryption.unwrap("mn://a.example/1", garbage)
        causes.append(raised.value.cause)

    assert causes == ["unreadable"] * UNWRAPS + ["too-many-keys"] * 2


def test_faults_of_a_peer_are_counted_for_operators():
    """
    What a peer sends on a stream and should not have is counted for it, by cause.
    """
    net = FakeNet()
    a = StreamNode(net, "mn://a.example/1")
    b = StreamNode(net, "mn://b.example/1", keys=rsa_only)
    b.streams.peer_counts.apply(["a.example"])
    a.send(b.name, b"open")
    net.run(1)
    b.ring.current.rsa = None

    a.send(b.name, SECRET, encrypt=True)
    net.run(1)

    assert b.streams.peer_counts.of("a.example").faults == {("stream", "unreadable"): 1}
