"""
Random conversations for the comparison: streams, cuts, limits, and what the server does between reads.
"""

from typing import Any

from hypothesis import strategies as st

from tests.support.fastpath_pair import MASK, frame

BAD = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80", b"\xed\xa0")
SIZES = (0, 1, 5, 124, 125, 126, 127, 129, 130, 131, 300, 999, 1000, 1001, 1499, 1500, 2001)


def weighted(*choices: tuple[int, Any]) -> Any:
    """
    Draws from one of the strategies, this often one, that often another; one_of forgets repetitions.
    """
    which = [number for number, (weight, _) in enumerate(choices) for _ in range(weight)]
    return st.sampled_from(which).flatmap(lambda number: choices[number][1])


texts = st.one_of(
    st.sampled_from(SIZES).map(lambda size: b"t" * size),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "ignore")),
    st.sampled_from(SIZES).map(lambda size: ("ż€\U0001f600" * size).encode()),
)
bad_texts = st.tuples(texts, st.sampled_from(BAD), texts).map(b"".join)
small = st.binary(max_size=20)
masks = st.sampled_from((MASK, bytes(4))) | st.binary(min_size=4, max_size=4)


def framed(payloads: Any, first: int = 0x81) -> Any:
    return st.builds(frame, payloads, st.just(first), masks)


codes = st.sampled_from((0, 999, 1000, 1001, 1004, 1005, 1006, 1011, 1014, 2999, 3000, 4999, 5000, 65535))
reasons = st.just(b"") | texts.map(lambda text: text[:123]) | st.sampled_from(BAD)
closes = st.builds(lambda code, reason: frame(code.to_bytes(2, "big") + reason, first=0x88), codes, reasons)
pings = st.one_of(framed(small, 0x89), framed(small, 0x8A))
mostly = weighted((9, st.just(True)), (1, st.just(False)))


@st.composite
def fragmented(draw: Any) -> bytes:
    """
    A message in parts, sometimes with something between them, sometimes without an end.
    """
    payload = draw(weighted((12, texts), (1, bad_texts)))
    cuts = sorted(draw(st.lists(st.integers(0, len(payload)), max_size=3)))
    parts = [payload[a:b] for a, b in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
    stream = b""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1 and draw(mostly)
        stream += frame(part, first=(0x80 if last else 0) | (0 if number else draw(st.sampled_from((1, 2)))))
        stream += draw(weighted((20, st.just(b"")), (8, pings), (1, closes)))
    return stream


# After one of these little is heard, so there must not be many.
faults = st.one_of(
    framed(bad_texts),
    closes,
    st.builds(frame, texts, st.integers(0, 255), masks),
    st.builds(frame, texts, st.just(0x81), st.none()),
    st.builds(frame, texts, st.just(0x81), masks, st.sampled_from((126, 127))),
    st.builds(
        frame,
        texts,
        st.just(0x81),
        masks,
        st.just(127),
        st.sampled_from((0, 65535, 2**63 - 1, 2**63, 2**64 - 1)),
    ),
    st.builds(frame, texts, st.just(0x81), masks, st.just(126), st.integers(0, 3000)),
)
long = st.sampled_from((16370, 16400, 20000, 65536)).map(lambda size: frame(b"long" * (size // 4)))
pieces = weighted(
    *((60, framed(texts)), (12, pings), (8, fragmented())),
    *((5, framed(small, 0x82)), (2, long), (1, framed(small, 0x88)), (2, closes), (1, framed(bad_texts))),
    (2, faults),
)
streams = st.lists(pieces, min_size=3, max_size=14).map(b"".join)

sizes = weighted(
    (2, st.integers(1, 20)), (4, st.integers(1, 400)), (2, st.integers(400, 4000)), (3, st.just(70000))
)
acts = weighted(
    (6, st.just("answer")),
    (4, st.sampled_from(("ping", "queue", "drain", "long"))),
    (2, st.sampled_from(("close", "drop", "abort"))),
)
between = st.one_of(
    acts.map(lambda what: ("act", what)),
    st.sampled_from((0.5, 4.9, 5, 10, 10)).map(lambda seconds: ("wait", seconds)),
)
deeds = (
    *("answer close answer", "close", "drop", "abort", "answer drop answer", "raise", "answer raise"),
    *("answer answer", "answer ping answer", "queue answer", "answer queue", "drain answer", "long"),
)
reactions = st.dictionaries(
    st.integers(1, 8), weighted((3, st.just("answer")), (2, st.sampled_from(deeds))), max_size=6
)
options = st.fixed_dictionaries(
    {
        "failByDrop": st.booleans(),
        "maxFramePayloadSize": weighted((9, st.just(0)), (1, st.sampled_from((130, 1000)))),
        "maxMessagePayloadSize": weighted((9, st.just(0)), (1, st.sampled_from((130, 2000)))),
        "echoCloseCodeReason": st.booleans(),
        "autoPingInterval": st.sampled_from((0, 10, 10)),
        "autoPingTimeout": st.sampled_from((0, 5, 5)),
        "autoPingRestartOnAnyTraffic": st.booleans(),
        "utf8validateIncoming": mostly,
        "requireMaskedClientFrames": mostly,
    }
)


@st.composite
def scripts(draw: Any) -> list[tuple]:
    """
    A stream in reads, with something done before some of them, and lost in the end.
    """
    stream, cuts = draw(streams), draw(st.lists(sizes, min_size=1, max_size=8))
    script: list[tuple] = []
    at = number = 0
    while at < len(stream):
        if number < 60 and draw(st.integers(0, 7)) == 7:
            script.append(draw(between))
        # After a good many small reads the rest comes in large ones, or it takes too long.
        size = cuts[number % len(cuts)] if number < 60 else 70000
        script.append(("read", stream[at : at + size]))
        at += size
        number += 1
    return [*script, ("wait", 20), ("lost",)]
