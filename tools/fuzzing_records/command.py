"""
The command: definitions are damaged, read, and what was read is checked for its promises.
"""

import argparse
import random
import time
from pathlib import Path

from msgnode.records.checker import Checker
from msgnode.records.definition import Definitions
from msgnode.records.generate import c, java, python, typescript
from msgnode.records.generate.plan import GenerationRefused
from msgnode.records.problems import DefinitionsRefused
from msgnode.records.reader import read_texts
from msgnode.records.writer import to_json, to_xml

EXAMPLES = Path(__file__).resolve().parents[2] / "tests/records"
PIECES = b'"\\{}[]:,<>&;/=0159-+.eEtfn^#\x00\x80\xff \n\t'
WORDS = (
    b"RECORD",
    b"ENUM",
    b"[]",
    b"{}",
    b"mandatory",
    b"true",
    b'"values"',
    b"<slot ",
    b"<!DOCTYPE",
    b"\\ud800",
)
GENERATORS = (python.generate, typescript.generate, java.generate, c.generate)


def main(words: list[str]) -> int:
    """
    Fuzz for a time; the exit code is 1 if a promise was broken.
    """
    parser = argparse.ArgumentParser(prog="tools/fuzz-records")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="the default is another each time")
    given = parser.parse_args(words)
    seed = random.randrange(2**32) if given.seed is None else given.seed
    chance = random.Random(seed)
    corpus = corpus_of_examples()
    tried = accepted = 0
    slowest = 0.0
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        name, text = chance.choice(corpus)
        damaged = damage(text, chance, corpus)
        try:
            found, taken = read(name, damaged)
        except Exception as error:
            path = Path(f"fuzz-records-{seed}-{tried}{Path(name).suffix}")
            path.write_bytes(damaged)
            print(f"seed {seed}: {path}: {type(error).__name__}: {error}")
            return 1
        slowest = max(slowest, taken)
        tried += 1
        accepted += found
    summary = f"{tried} definitions, {accepted} accepted, the slowest was read in {slowest * 1000:.0f} ms"
    print(f"seed {seed}: {summary}")
    return 0


def corpus_of_examples() -> list[tuple[str, bytes]]:
    """
    The examples of the tests, in both forms.
    """
    found = []
    for path in sorted(EXAMPLES.glob("*.records.json")):
        definitions = read_texts([(path.name, path.read_bytes())])
        found += [("a.json", to_json(definitions).encode()), ("a.xml", to_xml(definitions).encode())]
    return found


def damage(text: bytes, chance: random.Random, corpus: list[tuple[str, bytes]]) -> bytes:
    """
    The text with some bytes removed, repeated, or replaced by others.
    """
    made = bytearray(text)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(made) + 1)
        length = chance.choice((0, 1, 2, 8, 64))
        match chance.randrange(5):
            case 0:
                made[at : at + length] = b""
            case 1:
                made[at:at] = bytes(chance.choice(PIECES) for _ in range(length))
            case 2:
                made[at:at] = chance.choice(WORDS)
            case 3:
                made[at:at] = made[at : at + length] * chance.choice((1, 2, 100))
            case 4:
                other = chance.choice(corpus)[1]
                start = chance.randrange(len(other))
                made[at : at + length] = other[start : start + length]
    return bytes(made)


def read(name: str, text: bytes) -> tuple[bool, float]:
    """
    Were the definitions accepted, and in how many seconds? Those that were convert, check and generate.
    """
    started = time.perf_counter()
    try:
        found = read_texts([(name, text)])
    except DefinitionsRefused as why:
        assert why.problems and str(why)
        return False, time.perf_counter() - started
    taken = time.perf_counter() - started
    _keep_promises(found)
    return True, taken


def _keep_promises(found: Definitions) -> None:
    for other, written in (("a.json", to_json(found)), ("a.xml", to_xml(found))):
        assert read_texts([(other, written.encode())]).records == found.records, f"{other} differs"
    checker = Checker(found)
    for record in found:
        body = b'{"LATER": 1}'
        assert not checker.accepts(record.id, body) or checker.check(record.id, {"LATER": 1}) is None
    for generate in GENERATORS:
        try:
            assert generate(found)
        except GenerationRefused as why:
            assert str(why)
