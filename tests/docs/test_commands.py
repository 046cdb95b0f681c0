"""
The commands that documents and help texts show can be typed: verbs and options exist, and none is missing.
"""

import itertools
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from msgnode.cli.main import main
from tests.support.examples import TOP

DOCUMENTS = sorted([TOP / "README.md", *(TOP / "docs").rglob("*.md")])
NOT_HERE = ("msgnode mine", "msgnode -")  # needs directories that exist; is no verb


def help_texts(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(command, click.Group):
        for verb in command.commands.values():
            yield from help_texts(verb, f"{name} {verb.name}")
    yield name, command.help or ""


def shown() -> Iterator[tuple[str, str]]:
    """
    Where a command is, and the command.
    """
    for path in DOCUMENTS:
        text = path.read_text("utf-8")
        blocks = re.findall(r"^```(?:sh|console|text|)\n(.*?)^```", text, re.M | re.S)
        lines = [line[4:] for line in text.splitlines() if line.startswith("    msgnode ")]
        for line in [*lines, *(line for block in blocks for line in block.splitlines())]:
            yield path.name, line
    for name, text in help_texts(main, "msgnode"):
        for line in re.findall(r"^ +(msgnode .*)$", text, re.M):
            yield name, line


def commands() -> list[tuple[str, str]]:
    """
    Those that are whole: no placeholder, no next line.
    """
    found = dict.fromkeys(
        (where, line.removeprefix("$ ").strip())
        for where, line in shown()
        if line.removeprefix("$ ").startswith("msgnode ") and "..." not in line.split("--reason")[0]
    )
    return [
        each
        for each in found
        if not each[1].endswith(("\\", "[OPTIONS]")) and not each[1].startswith(NOT_HERE)
    ]


def words_of(line: str) -> list[str]:
    """
    The words of a command, without the explanation next to it, and what a pipe or a redirection adds.
    """
    lexer = shlex.shlex(line.split("   ")[0], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(itertools.takewhile(lambda word: word[0] not in "|<>&;()", lexer))


@pytest.mark.parametrize(("where", "line"), commands())
def test_a_command_that_is_shown_can_be_typed(where: str, line: str) -> None:
    """
    With all that it needs, such as the reason of an action.
    """
    words = words_of(line)[1:]
    command: click.Command = main
    context = click.Context(main, info_name="msgnode")
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    if not isinstance(command, click.Group):
        command.make_context(command.name, words, parent=context, resilient_parsing=False)
