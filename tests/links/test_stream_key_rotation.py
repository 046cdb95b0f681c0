"""
Keys of a node that change while it runs.
"""

from functools import cache

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from twisted.internet.defer import Deferred, succeed

from msgnode.links.overlay.network import NodeKeys
from msgnode.links.stream.safety.key_rotation import ROTATE_SECONDS, KeyRotation
from msgnode.links.wire.stream_header import WRAPPED, decode
from tests.support.links_stream import FakeNet, StreamNode
from tests.support.links_stream_wire import connected

SECRET = b"the secret of the message"


@cache
def rsa_key() -> RSAPrivateKey:
    return generate_private_key(65537, 3072)


def rotation(net, node, wants_rsa=lambda: False, made=None):
    """
    The rotation of a node's keys, which it advertises.
    """
    return KeyRotation(
        node.ring,
        net.clock,
        wants_rsa,
        lambda: made or succeed(rsa_key()),
        lambda keys: net.advertise(node.name, keys),
    )


def test_keys_are_renewed_each_day():
    """
    After a day another key is in use; messages go on both ways, and none is lost.
    """
    net, a, b = connected()
    before = a.ring.current.public
    rotation(net, a).start()

    net.clock.advance(ROTATE_SECONDS)
    after = a.ring.current.public
    a.send(b.name, b"to b")
    b.send(a.name, b"to a")
    net.run(5)

    assert after.start == before.start  # it is no other process
    assert after.x25519 != before.x25519
    assert (a.payloads[-1], b.payloads[-1]) == (b"to a", b"to b")


def test_an_rsa_key_is_offered_when_the_configuration_wants_one():
    """
    A peer that can encrypt by RSA only does so from then on, without a restart.
    """
    net = FakeNet()
    a, b = StreamNode(net, "mn://a.example/1"), StreamNode(net, "mn://b.example/1")
    is_wanted = []
    keys = rotation(net, b, lambda: bool(is_wanted))
    keys.start()
    keys.apply()
    before = b.ring.current.public.rsa
    is_wanted.append(True)

    keys.apply()
    offered = b.ring.current.public
    net.advertise(b.name, NodeKeys(offered.start, offered.x25519, offered.rsa, frozenset()))
    a.send(b.name, SECRET, encrypt=True)
    net.run(2)

    assert (before, b.payloads) == (b"", [SECRET])
    assert WRAPPED in {decode(each.header).flags for each in net.sent if each.source == a.name}


def test_a_key_is_made_once():
    """
    While a key is being made, no other one is; a node that has stopped offers none.
    """
    net = FakeNet()
    b = StreamNode(net, "mn://b.example/1")
    made: Deferred[RSAPrivateKey] = Deferred()
    keys = rotation(net, b, lambda: True, made)
    keys.start()

    keys.apply()
    keys.apply()
    keys.stop()
    made.callback(rsa_key())

    assert b.ring.current.rsa is None
