"""
Datagrams of streams in tests: under way, or made by a peer that means harm.
"""

from msgnode.links.wire.datagram import Datagram
from msgnode.links.wire.stream_header import MESSAGE, StreamHeader, encode
from tests.support.links_stream import FakeNet, StreamNode, pair


def connected(**options) -> tuple[FakeNet, StreamNode, StreamNode]:
    """
    Two nodes with a stream from the first to the second, which has got one message.
    """
    net, a, b = pair(**options)
    a.send(b.name, b"open")
    net.run(1)
    net.sent.clear()
    return net, a, b


def next_datagram(net: FakeNet, a: StreamNode, b: StreamNode) -> Datagram:
    """
    A message's datagram that has not arrived.
    """
    found: list[Datagram] = []
    net.tap = found.append
    a.send(b.name, b"payload")
    net.flush()
    net.tap = lambda datagram: None
    return found[0]


def sealed(a: StreamNode, b: StreamNode, payload: bytes = b"", priority: int = 5, **changes) -> Datagram:
    """
    A datagram from `a` as a peer makes it that has the keys, and means harm.
    """
    peer = a.streams.peers[b.name]
    fields = {
        "kind": MESSAGE,
        "flags": 0,
        "epoch": peer.outgoing.epoch,
        "memory": peer.outgoing.memory,
        "lane": 5,
        "number": 2,
        "floor": 1,
        "piece": 0,
        "pieces": 1,
        "ttl_millis": 60_000,
        "acknowledgement": None,
    }
    header = encode(StreamHeader(**(fields | changes)))
    key, nonce = peer.keys.sending(), a.ring.next_nonce()
    tag, data = key.seal(nonce, priority, header, payload, False)
    return Datagram(a.name, b.name, 32, [], priority, key.id, nonce, tag, header, data)
