"""
The command line without a node: its help, and what it makes of what it is given.
"""

import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from twisted.python.failure import Failure

from msgnode.cli.bench.load_generator import Loop
from msgnode.cli.connection import Console
from msgnode.cli.main import main
from msgnode.cli.messaging.bodies import body_of
from msgnode.cli.registry import _shown as shown_entry
from msgnode.client import Refused

TALKING = ("send", "request", "listen", "register", "find", "bench")


@pytest.mark.parametrize("verb", TALKING)
def test_help_of_each_verb_explains_usage_and_exit_codes(verb: str) -> None:
    """
    The help of each verb shows how it is used and what its exit codes mean; every option is explained.
    """
    shown = CliRunner().invoke(main, [verb, "--help"]).output

    assert f"  Examples:\n    msgnode {verb}" in shown
    assert "Exit code 0: " in shown and "3: cannot connect" in shown
    assert "--json" in shown and "--url" in shown
    for parameter in main.commands[verb].params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


def test_main_help() -> None:
    """
    The first page names every verb, something to try, and all exit codes.
    """
    shown = CliRunner().invoke(main, ["--help"]).output

    assert all(f"\n  {verb} " in shown for verb in main.commands)
    assert "..." not in shown.partition("\nCommands:")[2]
    assert all(f"{code} " in shown for code in (0, 1, 2, 3, 4, 130))


@pytest.mark.parametrize(
    "text, body",
    [
        (None, None),
        ("hello", "hello"),
        ('{"a": 1}', {"a": 1}),
        ("21.5", 21.5),
        ("[1]", [1]),
        ("", ""),
        ("true story", "true story"),
    ],
)
def test_body_is_json_where_it_is_json_and_else_the_text(text: str | None, body: object) -> None:
    """
    BODY is JSON where it is JSON, and else the text it is.
    """
    assert body == body_of(text)


def test_hyperty_of_the_registry_is_shown_with_what_a_person() -> None:
    """
    A hyperty of the registry is shown with what a person wants to know.
    """
    entry = {
        "hypertyID": "hyperty://localhost/lamp",
        "userID": "user://localhost/ann",
        "status": "live",
        "resources": ["light"],
        "dataSchemes": ["comm"],
    }

    shown = click.unstyle(shown_entry(entry))

    assert "hyperty://localhost/lamp  live\n  user     user://localhost/ann\n  kinds    light, comm" == shown
    assert "light, None" in shown_entry({**entry, "dataSchemes": [None]})  # registries take nulls in lists


@pytest.mark.parametrize(
    "line, part",  # click's own words are not the same in all its versions
    [
        ("send", "Missing argument 'TO'."),
        ("send comm://x --wait soon", "'--wait': 'soon'"),
        (
            "send comm://x [NaN]",
            "Invalid value for BODY: looks like JSON, but is not: NaN is not a number in JSON",
        ),
        ("send comm://x [1e999]", "Invalid value for BODY: looks like JSON, but is not: 1e999 is too large"),
        ('send comm://x {"a":}', "Invalid value for BODY: looks like JSON, but is not: "),
        ("listen --sideways", "--sideways"),
        ("policy check", "Missing argument 'FILE"),
        ("policy chekc", "No such command 'chekc'."),
        ("sned comm://x", "No such command 'sned'."),
        ("token x\ty", "Invalid value for USER: expected an address without spaces"),
        ("", "--json"),
    ],
)
def test_wrong_usage(line: str, part: str) -> None:
    """
    Wrong usage is told in words, and in JSON where JSON is wanted; the exit code is 2.
    """
    words = line.split(" ") if line else []

    told = CliRunner().invoke(main, ["--json", *words] if not line else [*words, "--json"])
    plain = CliRunner().invoke(main, words or ["--json-lines"])

    found = json.loads(told.stdout)
    assert (2, "", False) == (told.exit_code, told.stderr, found["ok"])
    assert part in found["error"]
    assert (2, "") == (plain.exit_code, plain.stdout)


def test_errors_in_json_have_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    """
    What is yellow for people is plain in JSON.
    """
    with pytest.raises(SystemExit):
        Console(as_json=True).stop(click.style("too fast", fg="yellow"), 1)

    assert {"ok": False, "error": "too fast"} == json.loads(capsys.readouterr().out)


def test_json_is_a_word() -> None:
    """
    Behind -- it is no option.
    """
    told = CliRunner().invoke(main, ["send", "--wait", "soon", "--", "comm://x", "--json"])

    assert (2, "") == (told.exit_code, told.stdout)


@pytest.mark.parametrize("runtime", ["foo", "mn:/x", "runtime:x", "runtime:///x", "runtime://localhost/"])
def test_runtime_without_domain_or_path_is_refused(runtime: str) -> None:
    """
    A --runtime that is no URL with a domain and a path is refused in one line, before a connection is made.
    """
    told = CliRunner().invoke(main, ["listen", "--runtime", runtime, "--url", "tcp://127.0.0.1:1"])

    wanted = "expected a runtimeURL such as runtime://localhost/me"
    assert (2, f"msgnode: --runtime: {wanted}, not {runtime!r}\n") == (told.exit_code, told.stderr)


class Typing(io.BytesIO):
    """
    The stdin of somebody who presses Ctrl-C instead of an end.
    """

    def read(self, size: int | None = -1) -> bytes:
        if size == 0:
            return b""  # only a look at what it is
        raise KeyboardInterrupt


@pytest.mark.parametrize("line", ["send comm://x -", "request comm://x -", "listen --login - comm://x"])
def test_interrupt_on_stdin(line: str) -> None:
    """
    Ctrl-C while a verb reads stdin ends it with 130, and without a word.
    """
    told = CliRunner().invoke(main, line.split(), input=Typing())

    assert (130, "", "") == (told.exit_code, told.stdout, told.stderr)


def test_bench_loop_keeps_to_its_window() -> None:
    """
    A loop of the bench has no more under way than its window, and counts a fan-out as done with the last.
    """
    sent: list[int] = []
    loop = Loop(sent.append, window=2, receivers=3)

    loop.start()
    for _ in range(2):
        loop.came()
    assert (2, 4) == (len(sent), loop.under_way)
    loop.came()

    assert (3, 3, 6) == (len(sent), loop.arrived, loop.under_way)
    assert 1 == len(loop.delays)
    loop.stop()
    for _ in range(6):
        loop.came()
    assert (3, 0) == (len(sent), loop.under_way)


def test_refused_load() -> None:
    """
    What a node refuses is counted by its words and no longer under way; if nothing is, one is sent later.
    """
    sent: list[int] = []
    waiting: list[Any] = []
    loop = Loop(sent.append, 3, 1, lambda seconds, call: waiting.append((seconds, call)))
    loop.start()

    loop.refused(429, "slow down")
    loop.came()
    under_way = loop.under_way
    loop.refused(429, "slow down")
    loop.failed(Failure(Refused(403, "Blocked by policy")), 1)

    assert {"429 slow down": 2, "403 Blocked by policy": 1} == loop.refusals
    assert (2, 0, 4) == (under_way, loop.under_way, len(sent))
    ((seconds, again),) = waiting
    again()
    assert (1.0, 1, 5) == (seconds, loop.under_way, len(sent))
    loop.refused(429, "slow down")
    loop.stop()
    waiting[1][1]()
    assert (0, 5) == (loop.under_way, len(sent))


def test_lost_answers() -> None:
    """
    Where answers are lost another request goes out after a second, and what comes is counted as its own.
    """
    sent: list[int] = []
    waiting: list[Any] = []
    loop = Loop(sent.append, 2, 1, lambda seconds, call: waiting.append((seconds, call)))
    loop.start()
    loop.watch()

    def wait() -> float:
        seconds, look = waiting.pop()
        look()
        return float(seconds)

    passed = 0.0
    while len(sent) == 2:
        passed += wait()
    loop.came(sent[-1])

    assert (pytest.approx(1.0), [0, 1, 2, 3]) == (passed, sent)
    assert (1, 3) == (len(loop.delays), loop.under_way)
    loop.stop()
    wait()
    assert not waiting


@pytest.mark.parametrize(
    "words", ["listen --for", "send a b --wait", "send a b --ttl", "request a --timeout", "find a --timeout"]
)
@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_seconds(words: str, seconds: str) -> None:
    """
    A time that is none is wrong usage, which is said before anybody is called.
    """
    result = CliRunner().invoke(main, [*words.split(), seconds])

    assert result.exit_code == 2
    assert words.split()[-1] in result.stderr and seconds in result.stderr


@pytest.mark.parametrize("seconds", ["0", "-5", "3601", "soon"])
def test_registration_lives_from_a_second_to_an_hour(seconds: str) -> None:
    """
    A registration lives from a second to an hour; the help says so, and so does the error.
    """
    words = ["register", "hyperty://localhost/lamp", "--user", "user://localhost/ann"]

    told = CliRunner().invoke(main, [*words, "--expires", seconds])

    assert 2 == told.exit_code
    assert seconds == "soon" or "1<=x<=3600" in told.stderr
    assert "1<=x<=3600" in CliRunner().invoke(main, ["register", "--help"]).output


def test_check_names_a_wrong_endpoint(tmp_path: Path) -> None:
    """
    `msgnode check` says in one line which endpoint is wrong, and why.
    """
    file = tmp_path / "node.toml"
    file.write_text('web = ["tcp:x"]\n')

    result = CliRunner().invoke(main, ["check", str(file)])

    assert result.exit_code == 2
    assert "web: expected an endpoint such as tcp:9090, found 'tcp:x': invalid literal" in result.output


def test_check_shows_no_secrets(tmp_path: Path) -> None:
    """
    `msgnode check` shows the configuration without secrets, and URLs without passwords.
    """
    file = tmp_path / "node.toml"
    file.write_text(
        'node = "n1"\n[cluster]\nurl = ["nats://ann:HIDDEN1@127.0.0.1:4222"]\n'
        '[qos]\nurl = "embedded"\nturn_secret = "HIDDEN2"\nturn_urls = ["turn:127.0.0.1:3478"]\n'
    )

    shown = CliRunner().invoke(main, ["check", str(file)])
    as_json = CliRunner().invoke(main, ["check", "--json", str(file)])

    assert (shown.exit_code, as_json.exit_code) == (0, 0), (shown.output, as_json.output)
    assert "HIDDEN" not in shown.output + as_json.output
    assert json.loads(as_json.output)["config"]["qos"]["turn_secret"] == "***"
