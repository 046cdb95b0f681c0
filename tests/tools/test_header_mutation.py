"""
tools/mutate-headers in its small form, and its judge: it must be able to find what it looks for.
"""

import sys
from random import Random

import pytest
from header_mutation.command import Chunk, compared, main
from header_mutation.compare import Disagreement, check, same
from header_mutation.mutants import SEEDS, mutant
from header_mutation.reference import ACCEPTED, DUPLICATE, REFUSED, verdict

from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message, decode

START = b'{"id":1,"type":"x","from":"a","to":"b"'


def test_node_and_reference_agree() -> None:
    """
    On thousands of mutants, with every other reading of those that are messages; all kinds are among them.
    """
    found = compared(Chunk(seed=7, number=0, size=4000, every=2))

    assert found.disagreements == []
    assert found.kinds.total() == 4000
    assert min(found.kinds[kind] for kind in (ACCEPTED, DUPLICATE, REFUSED)) > 100


def test_seeds_are_messages() -> None:
    """
    What is mutated is a message, in whatever spelling.
    """
    assert {check(data) for data in SEEDS} == {ACCEPTED}


def test_same_seed_same_mutants() -> None:
    """
    A seed names its mutants.
    """
    first, second = Random("1 0"), Random("1 0")

    assert [mutant(first) for _ in range(50)] == [mutant(second) for _ in range(50)]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        (b"", ACCEPTED),
        (b',"x":{"to":1,"to":2}', ACCEPTED),
        (b',"body":{"v":"\\ud83d","v":1}', ACCEPTED),
        (b',"priority":9,"ttl":0.5,"log":false,"transaction":null', ACCEPTED),
        (b',"t\\u006f":"c"', DUPLICATE),
        (b',"to" :"b"', DUPLICATE),
        (b',"body":{},"body":{}', DUPLICATE),
        (b',"to":1', REFUSED),
        (b',"body":[]', REFUSED),
        (b',"priority":10', REFUSED),
        (b',"ttl":1e400', REFUSED),
        (b',"ttl":1' + b"0" * 400, REFUSED),
        (b',"x":NaN', REFUSED),
        (b',"x":"\\ud83d"', REFUSED),
        (b',"transaction":9223372036854775808', REFUSED),
        (b',"x":1}', REFUSED),
    ],
)
def test_reference(more: bytes, kind: str) -> None:
    """
    The reference says what docs/protocol.md says, and so does the node.
    """
    assert verdict(START + more + b"}").kind == kind
    assert check(START + more + b"}") == kind


def test_values_differ() -> None:
    """
    A value of another type is another value.
    """
    same("id", 1, 1)
    with pytest.raises(Disagreement, match="id: 1, not True"):
        same("id", 1, True)


def test_other_readers() -> None:
    """
    A reader that lets keys stand twice, refuses what it should take, or names no key is found out.
    """
    double = START + b',"to":"c"}'

    def first(data: bytes) -> Message:
        return decode(START + b"}")

    def refuse(data: bytes) -> Message:
        raise Malformed("not a message")

    with pytest.raises(Disagreement, match=r"taken for a message; it is duplicate key \['to'\]"):
        check(double, read=first)
    with pytest.raises(Disagreement, match="refused: not a message"):
        check(START + b"}", read=refuse)
    with pytest.raises(Disagreement, match="'to' occurs twice in the header"):
        check(double, read=refuse)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    """
    It says how far it is and what it found, and ends with 0 where nothing was.
    """
    assert main(["--mutants", "300", "--jobs", "1"]) == 0

    assert "300 of 300 mutants: " in capsys.readouterr().out


def test_without_the_compiled_data_plane(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Who asks for the native scan where it is not built is told so.
    """
    monkeypatch.setitem(sys.modules, "msgnode_native", None)

    assert main(["--native"]) == 3

    assert "msgnode_native is not built" in capsys.readouterr().err
