"""
The prose of the documents, and of docstrings, comments and log lines, is plain technical English.

Each rule is a pattern, and what to write instead. Code blocks and `code` are not looked at.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.source import sources

TOP = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*(TOP / "docs").glob("*.md"), *(TOP / name for name in ("README.md", "CONTRIBUTING.md", "NEWS.md"))]
)
LONGEST = 120
LEVELS, LOGS = ("debug", "info", "warn", "error", "failure", "critical"), ("log", "_log")
_CLASS = re.compile(r'^ *class \w+[^"]*?:\n +"""\n? *(.*)', re.MULTILINE)
_COMMENT = re.compile(r"(?:^ *|  )# *(.*)")


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
HOMELY = [
    Rule("beside", r"\bbeside\b", "'in addition to', 'next to', 'with'"),
    Rule("anew", r"\banew\b", "'again'"),
    Rule("given-up", r"\bgiven up\b", "'cancelled', 'timed out', 'the circuit breaker is open'"),
    Rule("now-and-again", r"\bnow and (again|then)\b", "'every 5 seconds', 'periodically'"),
    Rule("the-way-out", r"\bthe way (in|out)\b", "'ingress' and 'egress', or 'at `in`' and 'at `out`'"),
    Rule(
        "no-good",
        r"\b(no good|good no longer|(will|do|does) not do|does as well)\b",
        "'invalid', 'is enough'",
    ),
    Rule("owed", r"\bow(e|es|ed)\b", "'undelivered', 'unacknowledged'"),
    Rule("farewell", r"\bfarewells?\b", "'disconnection', 'close'"),
    Rule("half-a-character", r"\bhalf a character\b", "'a lone surrogate'"),
    Rule("stands-twice", r"\bstands? twice\b", "'occurs twice'"),
    Rule("turned-round", r"\bturned round\b", "'swapped'"),
]
IN_DOCUMENTS = [
    *ANYWHERE,
    *HOMELY,
    Rule("free-subject", r"\b(Who|Whoever|Whom|Nobody|Somebody) ", "'A client that ...', 'No client ...'"),
    Rule("whoever", r"\b(whoever|nobody|somebody|anybody)\b", "'any client that ...', 'no session'"),
    Rule("is-told", r"\b(is|are) told\b", "'is notified', 'is answered', 'gets'"),
    Rule("all-the-same", r"\ball the same\b", "'still'"),
    Rule("on-trial", r"\bon trial\b", "'the dry run'"),
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
IN_TEXTS = [
    *HOMELY,
    Rule(
        "headless",
        r"^(What|Who|Whose|Whom|Whoever|Nobody|Somebody|Something|Anybody)\b(?!.*\?)",
        "begin with a noun or a verb: 'The tokens that ...', 'Returns ...'",
    ),
    Rule("free-subject", r"[.;:] (Who|Whoever|Whom|Whose|Nobody|Somebody)\b(?!.*\?)", "'A client that ...'"),
    Rule(
        "whoever", r"\b(whoever|nobody|somebody|anybody|everybody)\b", "'any client that ...', 'no session'"
    ),
    Rule("is-told", r"\b(is|are|was|were|been|be) told\b", "'is notified', 'is answered', 'is logged'"),
]
IN_LOG_LINES = [
    *IN_TEXTS,
    Rule(
        "fragment",
        r"^(?!(every|no)thing )\w+ing\b",
        "a whole sentence with a subject: 'the backlog of a read could not be handled'",
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
    for source in sources().values():
        name = str(source.path.relative_to(TOP))
        for number, text in enumerate(source.text.splitlines(), 1):
            yield Line(name, number, text)


def texts() -> Iterator[Line]:
    """
    Each paragraph of a docstring, and each line of comment, with `code` made a dot.
    """
    for source in sources().values():
        name = str(source.path.relative_to(TOP))
        for number, docstring in source.docstrings:
            for paragraph in docstring.split("\n\n"):
                yield Line(name, number, _plain(paragraph))
        for number, line in enumerate(source.text.splitlines(), 1):
            if comment := _COMMENT.search(line):
                yield Line(name, number, _plain(comment[1]))


def log_lines() -> Iterator[Line]:
    """
    The text of each call of a log.
    """
    for source in sources().values():
        for call in source.calls:
            if (text := _logged(call)) is not None:
                yield Line(str(source.path.relative_to(TOP)), call.lineno, text)


def _logged(call: ast.Call) -> str | None:
    """
    The text that a call such as `log.warn("...")` or `self._failures.note("...")` logs.
    """
    if (
        not isinstance(call.func, ast.Attribute)
        or not call.args
        or not isinstance(call.args[0], ast.Constant)
    ):
        return None
    owner = call.func.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    is_log = (call.func.attr in LEVELS and name in LOGS) or call.func.attr == "note"
    return call.args[0].value if is_log and isinstance(call.args[0].value, str) else None


def _plain(text: str) -> str:
    return re.sub(r"`[^`]*`", ".", " ".join(text.split()))


def class_starts() -> Iterator[Line]:
    """
    The first line of each class docstring.
    """
    for source in sources().values():
        for match in _CLASS.finditer(source.text):
            number = source.text.count("\n", 0, match.start(1)) + 1
            yield Line(str(source.path.relative_to(TOP)), number, match[1])


def broken(rule: Rule, lines: list[Line], whole: str) -> str:
    """
    Each place that breaks the rule, one a line, with what to write instead. What the whole text does not
    have, no line of it has, and to search it at once is quick.
    """
    pattern = re.compile(rule.pattern, re.MULTILINE)
    if not pattern.search(whole):
        return ""
    found = [(line, match[0]) for line in lines if (match := pattern.search(line.text))]
    return "\n".join(
        f"{line.path}:{line.number}: {rule.name}: {text[:40]!r}: {rule.advice}" for line, text in found
    )


def check(rules: list[Rule], lines: Iterator[Line]) -> None:
    every = list(lines)
    whole = "\n".join(line.text for line in every)
    if places := [found for rule in rules if (found := broken(rule, every, whole))]:
        pytest.fail("\n".join(places), pytrace=False)


def test_documents() -> None:
    """
    The documents keep each rule.
    """
    check(IN_DOCUMENTS, prose())


def test_docstrings_and_comments() -> None:
    """
    Docstrings, comments and messages of the program keep the rules that hold for all prose.
    """
    check(ANYWHERE, source())


def test_texts_in_the_program() -> None:
    """
    Docstrings and comments use standard terms, and have subjects.
    """
    check(IN_TEXTS, texts())


def test_log_lines() -> None:
    """
    Log lines are whole sentences in standard terms.
    """
    check(IN_LOG_LINES, log_lines())


def test_class_docstrings_say_what_the_class_is() -> None:
    """
    No class docstring begins with a name in backticks, a pronoun or a question word.
    """
    check([CLASS_START], class_starts())
