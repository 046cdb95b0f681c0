"""
The prose of the documents, and of docstrings and comments, is plain technical English.

Each rule is a pattern, and what to write instead.  Code blocks and `code` in documents are not looked at.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).parents[2]
DOCUMENTS = sorted([*(TOP / "docs").glob("*.md"), TOP / "README.md", TOP / "CONTRIBUTING.md"])
MODULES = sorted((TOP / "msgnode").rglob("*.py"))
LONGEST = 120
_CLASS = re.compile(r'^ *class \w+[^"]*?:\n +"""\n? *(.*)', re.MULTILINE)


class Rule(NamedTuple):
    """
    A pattern that prose must not have, and the advice that the failure gives.
    """

    name: str
    pattern: str
    advice: str


class Line(NamedTuple):
    """
    A line of text, and where it stands.
    """

    path: str
    number: int
    text: str


ANYWHERE = [
    Rule("he", r"\b([Hh]e|[Hh]is|[Hh]im|[Ss]he|[Hh]ers?)\b", "name the client, or write 'its'"),
    Rule("as-ever", r"\bas ever\b", "say what stays the same, or leave it out"),
    Rule("latin", r"\b(e\.g|i\.e)\.", "write 'for example' or 'that is'"),
    Rule("contraction", r"\b(\w+n't|it's|let's|we'll|you're|you'll)\b", "write both words in full"),
]
IN_DOCUMENTS = [
    *ANYWHERE,
    Rule("free-subject", r"\b(Who|Whoever|Whom|Nobody|Somebody) ", "'A client that ...', 'No client ...'"),
    Rule("whoever", r"\b(whoever|nobody|somebody|anybody)\b", "'any client that ...', 'no session'"),
    Rule("is-told", r"\b(is|are) told\b", "'is notified', 'is answered', 'gets'"),
    Rule("beside-it", r"\bbeside (it|them|its|each)\b", "'in addition', 'next to the file'"),
    Rule("anew", r"\banew\b", "'again'"),
    Rule("given-up", r"\b(is|was) given up\b|\bnow and again\b", "'the circuit breaker is open'"),
    Rule("the-way-out", r"\bthe way (in|out)\b", "'ingress' and 'egress', or 'at `in`' and 'at `out`'"),
    Rule("no-good", r"\b(no good|good no longer|will not do|does as well)\b", "'invalid', 'is enough'"),
    Rule("time-out", r"\b[Tt]ime-outs?\b", "'timeout'"),
    Rule("mail-address", r"(?<!e-)\bmail address", "'e-mail address'"),
    Rule("split-code", "`", "keep `code` on one line"),
    Rule("question-heading", r"^#+ .*\?$", "a noun that a reader searches for: 'Monitoring'"),
    Rule(
        "long-line",
        rf"^(?!\||Measured 20).{{{LONGEST + 1},}}",
        f"at most {LONGEST} characters outside tables",
    ),
]
CLASS_START = Rule(
    "class-start",
    r"^(`|(What|Who|Whose|Whoever|Where|It|They|Those|Nobody|Somebody|Something)\b)",
    "begin with what the class is: 'A token bucket ...', 'Reads ...'",
)


def prose() -> Iterator[Line]:
    """
    The lines of the documents outside code blocks, with `code` made as many dots.
    """
    for path in DOCUMENTS:
        name, fenced = str(path.relative_to(TOP)), False
        for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
            if text.startswith("```"):
                fenced = not fenced
            elif not fenced and not text.startswith("    "):
                yield Line(name, number, re.sub(r"`[^`]*`", lambda code: "." * len(code[0]), text))


def source() -> Iterator[Line]:
    """
    The lines of the program: all of them, for code has none of the words.
    """
    for path in MODULES:
        name = str(path.relative_to(TOP))
        for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
            yield Line(name, number, text)


def class_starts() -> Iterator[Line]:
    """
    The first line of each class docstring.
    """
    for path in MODULES:
        text = path.read_text("utf-8")
        for match in _CLASS.finditer(text):
            yield Line(str(path.relative_to(TOP)), text.count("\n", 0, match.start(1)) + 1, match[1])


PROSE, SOURCE = list(prose()), list(source())


def broken(rule: Rule, lines: list[Line]) -> str:
    """
    Each place that breaks the rule, one a line, with what to write instead.
    """
    pattern = re.compile(rule.pattern)
    found = [(line, match[0]) for line in lines if (match := pattern.search(line.text))]
    return "\n".join(
        f"{line.path}:{line.number}: {rule.name}: {text[:40]!r}: {rule.advice}" for line, text in found
    )


@pytest.mark.parametrize("rule", IN_DOCUMENTS, ids=lambda rule: rule.name)
def test_documents(rule: Rule) -> None:
    """
    The documents keep each rule.
    """
    if places := broken(rule, PROSE):
        pytest.fail(places, pytrace=False)


@pytest.mark.parametrize("rule", ANYWHERE, ids=lambda rule: rule.name)
def test_docstrings_and_comments(rule: Rule) -> None:
    """
    Docstrings, comments and messages of the program keep the rules that hold for all prose.
    """
    if places := broken(rule, SOURCE):
        pytest.fail(places, pytrace=False)


def test_class_docstrings_say_what_the_class_is() -> None:
    """
    No class docstring begins with a name in backticks, a pronoun or a question word.
    """
    if places := broken(CLASS_START, list(class_starts())):
        pytest.fail(places, pytrace=False)
