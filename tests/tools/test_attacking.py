"""
The judge of tools/attack: it must be able to find what it looks for.
"""

import pytest
from attacking.load.clients import Answer, Closed, frame, made_token
from attacking.report.command import Result, chosen, harm, row
from attacking.scenarios.ground import ATTACKS, MIB, Broke, Ground

BODY = {"code": 403, "description": "not yours"}
WELL = {"sent": 7, "came": 7, "disordered": 0, "kept": True, "lost": ""}


@pytest.fixture
def ground():
    return Ground(None, full=False, host="127.0.1.9")


@pytest.mark.parametrize("found", [{"body": BODY}, Closed(403, "refused"), Answer(403, b"not yours")])
def test_refusal_has_a_code_and_words(ground, found):
    """
    The code that was expected is borne with its words, by whatever it came; another one is not.
    """
    assert ground.answered(found, 401, 403)
    with pytest.raises(Broke, match="expected 413, got 403"):
        ground.answered(found, 413)


def test_refusal_without_a_word(ground):
    """
    A code alone is no clear refusal.
    """
    with pytest.raises(Broke, match="403 without a word"):
        ground.answered({"body": {"code": 403}}, 403)


def test_size_and_bound(ground):
    """
    A small ground has small numbers, and what is more than wanted is told in megabytes.
    """
    assert ground.size(10, 1000) == 10
    ground.bounded("on disk", MIB, MIB)
    with pytest.raises(Broke, match=r"on disk: 2\.1 MB, at most 1\.0 MB wanted"):
        ground.bounded("on disk", 2 * MIB, MIB)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"lost": "closed"}, "the canary lost its connection: closed"),
        ({"came": 6}, "the canary got 6 of 7"),
        ({"disordered": 1}, "the canary's messages came in disorder"),
        ({"kept": False}, "the canary's session was not kept"),
    ],
)
def test_harm_to_another_client(seen, text):
    """
    Whatever another client lost is harm.
    """
    assert harm(Quiet(), 0, MIB, WELL) == ""
    assert harm(Quiet(), 0, MIB, WELL | seen) == text


def test_harm_to_the_node():
    """
    So is a node that ended, complained or grew.
    """
    assert harm(Quiet(alive=False), 0, MIB, WELL) == "the node ended"
    assert harm(Quiet(complaint="Traceback"), 0, MIB, WELL) == "in its log: Traceback"
    assert harm(Quiet(log="x" * MIB), 0, MIB, WELL) == "it wrote 1.0 MB into its own log"
    assert harm(Quiet(), 2 * MIB, MIB, WELL) == "memory grew by 2 MB, 1 MB wanted"


def test_attacks_have_names_of_their_own():
    """
    `--only` means one of them, and an unknown name is refused.
    """
    assert len(ATTACKS) == len({attack.name for attack in ATTACKS})
    assert [attack.name for attack in chosen(["spool"])] == ["spool"]
    with pytest.raises(ValueError, match="no attack nothing; there are: "):
        chosen(["nothing"])


def test_row_says_what_broke():
    """
    On one line, whatever the node said.
    """
    assert row(Result("spool", "fills the disk", broke="a\n  b")).endswith("BROKE: a b")
    assert row(Result("spool", "fills the disk")).endswith("bore")


def test_frames_and_tokens():
    """
    A frame has its length in the form that its size needs; a made token has a token's shape.
    """
    for size, head in ((125, 6), (126, 8), (65535, 8), (65536, 14)):
        assert len(frame(b"x" * size)) == size + head
    assert frame(b"x", flags=-0x80)[0] == 1
    assert len(made_token()) == 47


class Quiet:
    """
    A node that has nothing to say, unless it is given.
    """

    def __init__(self, alive=True, complaint="", log=""):
        self.alive = lambda: alive
        self.complaint = lambda: complaint
        self.log = lambda: log
