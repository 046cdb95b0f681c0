"""
Compressed WebSocket messages: what may come out of them, and what is compressed for others.
"""

import zlib
from types import SimpleNamespace
from typing import Any

from autobahn.websocket.compress import (
    PerMessageDeflateOffer,
    PerMessageDeflateResponse,
    PerMessageDeflateResponseAccept,
)
from autobahn.websocket.utf8validator import Utf8Validator
from twisted.internet.address import IPv4Address
from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.websocket_frames import Validator
from tests.support.fastpath_pair import frame
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps
from tests.support.websocket_case import WebSocketCase

SIZE = 1_500_000  # bytes of a message that is sent as a few


def accept(response: Any) -> Any:
    if isinstance(response, PerMessageDeflateResponse):
        return PerMessageDeflateResponseAccept(response)
    return None


OFFER = {"perMessageCompressionOffers": [PerMessageDeflateOffer()], "perMessageCompressionAccept": accept}


class InflationTests(WebSocketCase):
    """
    A client `a` whose messages become a thousand times as long, and a device `b` that counts them.
    """

    def restart(self, **websocket: Any) -> None:
        super().restart(websocket={"compress_above_bytes": 1000, **websocket})
        self.other = TCPRuntime(self.net, "runtime://example.org/b").open()
        self.bomber = self.offering("a")

    def offering(self, name: str, host: str = "192.0.2.1") -> WebSocketRuntime:
        peer = IPv4Address("TCP", host, 40000 + len(self.net.runtimes))
        return self.client(name, options=OFFER, peer=peer).open()

    def bomb(self, id: int, size: int = SIZE) -> bytes:
        message = {
            "id": id,
            "type": "update",
            "from": "x",
            "to": self.other.url,
            "body": {"value": "v" * size},
        }
        squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
        short = squeeze.compress(dumps(message)) + squeeze.flush(zlib.Z_SYNC_FLUSH)
        return frame(short[:-4], first=0xC1)

    def read(self, data: bytes, client: WebSocketRuntime | None = None) -> int:
        """
        The node reads this at once; the messages that it carries in that turn.
        """
        counts = self.net.node.counts
        before = counts.received
        (client or self.bomber).link.serverIO.protocol.dataReceived(data)
        return counts.received - before

    def ids(self) -> list[int]:
        return [message["id"] for message in self.other.take()]

    def test_each_inflated_message_has_its_own_turn(self) -> None:
        """
        Of several in one read the first is carried at once, and each of the others in a turn of its own.
        """
        data = b"".join(self.bomb(id) for id in range(4))
        before = self.net.node.slices.done

        carried = self.read(data)

        self.assertEqual(1, carried)
        self.assertEqual(list(range(4)), self.ids())
        self.assertEqual(3, self.net.node.slices.done - before)

    def test_who_sends_more_than_may_come_out_in_a_second(self) -> None:
        """
        Who sends more than may come out in a second is not read from until then; nothing of it is lost.
        """
        self.restart(inflated_bytes_per_second=1_000_000)

        self.read(b"".join(self.bomb(id) for id in range(3)))
        self.net.pump()

        self.assertEqual(([0], True), (self.ids(), self.bomber.link.serverIO.deaf))
        self.net.advance(0.3)
        self.assertEqual([], self.ids())
        self.net.advance(0.5)
        self.assertEqual([1], self.ids())
        self.net.advance(2)
        self.assertEqual(([2], False), (self.ids(), self.bomber.link.serverIO.deaf))
        self.assertGreater(self.net.node.inflation.total, 3 * SIZE)
        self.assertGreater(self.net.node.inflation.pauses, 0)

    def test_one_host(self) -> None:
        """
        All connections of one address have one rate together, and those of another have their own.
        """
        self.restart(inflated_bytes_per_second=1_000_000)
        mate, stranger = self.offering("mate"), self.offering("stranger", "192.0.2.99")

        self.read(self.bomb(0))
        self.read(self.bomb(1), mate)
        self.read(self.bomb(2), stranger)
        self.net.pump()

        self.assertEqual([0, 2], self.ids())
        self.net.advance(2)
        self.assertEqual([1], self.ids())

    def test_short_ones(self) -> None:
        """
        Short messages are counted too; those of a second pass at once.
        """
        self.restart(inflated_bytes_per_second=100_000)

        self.read(b"".join(self.bomb(id, 1000) for id in range(200)))
        self.net.pump()

        self.assertLess(90, len(self.ids()))
        self.assertTrue(self.bomber.link.serverIO.deaf)

    def test_0_is_no_limit(self) -> None:
        """
        0 is no limit of what messages unpack to.
        """
        self.restart(inflated_bytes_per_second=0)

        for id in range(20):
            self.read(self.bomb(id))
            self.assertEqual([id], self.ids())
        self.assertEqual(0, self.net.node.inflation.pauses)

    def test_long_messages(self) -> None:
        """
        What takes long to compress leaves as it is.
        """
        sender = self.client("sender").open()
        first = []
        for size in (200_000, 300_000):
            self.bomber.stop_reading()
            sender.send(self.update(self.bomber, "v" * size))
            first.append(self.bomber.link.serverIO.stream[0][0])
            self.bomber.read_again()

        self.assertEqual([0xC1, 0x81], first)
        self.assertEqual(2, len(self.bomber.take()))

    def test_compressed_once(self) -> None:
        """
        A message to many is compressed once for all whose options are the same.
        """
        factory = self.bomber.link.serverIO.protocol.factory
        asked: list[bytes] = []

        def deflate(bits: int) -> Any:
            return SimpleNamespace(
                server_no_context_takeover=True,
                server_max_window_bits=bits,
                mem_level=8,
                start_compress_message=lambda: None,
                compress_message_data=lambda data: asked.append(data) or b"short",
                end_compress_message=lambda: b".",
            )

        one, two = b"one" * 1000, b"two" * 1000
        short = [factory.deflated(data, deflate(bits)) for data in (one, two) for bits in (15, 9, 15, 9)]

        self.assertEqual([b"short."] * 8, short)
        self.assertEqual([one, one, two, two], asked)


class ValidatorTests(SynchronousTestCase):
    """
    Against Autobahn's own.
    """

    def test_however_a_text_is_cut_it_is_found_valid(self) -> None:
        """
        However a text is cut, it is found valid or not as by Autobahn.
        """
        texts = [
            *(b"", b"ascii", "żółć €😀".encode(), b"a\xff", "€".encode()[:2], b"\xed\xa0\x80", b"\xc0\x80"),
            *(b"\xf4\x90\x80\x80", b"\xe2\x82a", b"\x80", "😀".encode() + b"\xf0\x9f"),
        ]
        for text in texts:
            for cut in range(len(text) + 1):
                verdicts = []
                for validator in (Utf8Validator(), Validator()):
                    validator.reset()
                    first = validator.validate(text[:cut])[:2]
                    verdict = validator.validate(text[cut:])[:2] if first[0] else first
                    verdicts.append((verdict[0], verdict[0] and verdict[1]))

                self.assertEqual(verdicts[0], verdicts[1], (text, cut))
