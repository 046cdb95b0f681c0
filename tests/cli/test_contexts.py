"""
Contexts: options of verbs from contexts.toml.
"""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from msgnode.cli.connection import talks
from msgnode.cli.contexts import ContextMistake, contexts_path, current_context, read_contexts
from msgnode.cli.main import main

LAB = """
default = "lab"

[context.lab]
url = "wss://mn.example.org/ws"
runtime = "runtime://example.org/me"
login_command = "echo secret"
admin_token_command = "echo mna_lab"

[context.other]
url = "tcp://127.0.0.1:9091"
"""


@click.command()
@talks
def probe(**options: Any) -> None:
    click.echo(json.dumps({**options, "admin_token": current_context().admin_token()}))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    A home without settings; returns the path of its contexts.toml.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("URL", "TOKEN", "LOGIN", "CONTEXT"):
        monkeypatch.delenv(f"MSGNODE_{name}", raising=False)
    path = contexts_path()
    path.parent.mkdir(parents=True)
    return path


def options(*arguments: str, **environment: str) -> dict[str, Any]:
    done = CliRunner().invoke(probe, arguments, env=environment)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_default_context_gives_the_options_of_a_verb(home: Path) -> None:
    """
    Without --context the default context gives the options, and its commands print the tokens.
    """
    home.write_text(LAB)

    found = options()

    assert "wss://mn.example.org/ws" == found["url"]
    assert "runtime://example.org/me" == found["runtime"]
    assert ("secret", "mna_lab") == (found["login"], found["admin_token"])


def test_named_context_and_explicit_options_win(home: Path) -> None:
    """
    The command line wins over the environment, that over the context, and --context over the default one.
    """
    home.write_text(LAB)

    assert "tcp://127.0.0.1:9091" == options("--context", "other")["url"]
    assert "tcp://127.0.0.1:9091" == options(MSGNODE_CONTEXT="other")["url"]
    assert "tcp://env:1" == options(MSGNODE_URL="tcp://env:1")["url"]
    assert "tcp://line:1" == options("--url", "tcp://line:1", MSGNODE_URL="tcp://env:1")["url"]
    assert "" == options("--context", "other")["login"]


def test_command_of_an_unused_token_does_not_run(home: Path, tmp_path: Path) -> None:
    """
    A password store is not asked for a token that the command line gives.
    """
    home.write_text(f'default = "a"\n[context.a]\nlogin_command = "touch {tmp_path}/asked"\n')

    options("--login", "mine")

    assert not (tmp_path / "asked").exists()


def test_no_file_means_no_context(home: Path) -> None:
    """
    Without a file the defaults hold; a name that is asked for is refused in words.
    """
    assert "ws://127.0.0.1:9090/ws" == options()["url"]

    done = CliRunner().invoke(probe, ["--context", "lab"])

    assert 2 == done.exit_code
    assert f"{home} has no context 'lab'; it has no context" in done.output


@pytest.mark.parametrize(
    "text, part",
    [
        ("default = ", "contexts.toml: Invalid value"),
        ("[context.a]\nurI = 'x'", "unknown field `urI`"),
        ("[lab]\nurl = 'x'", "a context is a table [context.NAME]"),
        ("[context.a]\nlogin = 'clear'", "expected @FILE"),
        ("[context.a]\nlogin = '@f'\nlogin_command = 'x'", "not both"),
        ("default = 'b'\n[context.a]", "has no context 'b'; it has a"),
    ],
)
def test_mistakes_in_the_file_are_named(home: Path, text: str, part: str) -> None:
    """
    A mistake in contexts.toml is an error that names the file and the key.
    """
    home.write_text(text)

    with pytest.raises(ContextMistake) as raised:
        read_contexts(home)

    assert part in raised.value.format_message()


def test_command_that_prints_no_token_is_an_error(home: Path) -> None:
    """
    A command that fails ends the verb with the command and its exit code.
    """
    home.write_text('default = "a"\n[context.a]\nlogin_command = "false"\n')

    done = CliRunner().invoke(probe)

    assert 2 == done.exit_code
    assert "'false' of this context printed no token; its exit code is 1" in done.output


def test_list_of_contexts(home: Path) -> None:
    """
    `context ls` lists the contexts with their URLs, and marks the default one.
    """
    home.write_text(LAB)

    done = CliRunner().invoke(main, ["context", "ls"])

    assert (
        "* lab              wss://mn.example.org/ws\n  other            tcp://127.0.0.1:9091\n" == done.output
    )
    assert "secret" not in CliRunner().invoke(main, ["context", "ls", "--json"]).output.replace(
        "echo secret", ""
    )
