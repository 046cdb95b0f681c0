"""
The command line of `twistd msgnode`.
"""

import io
from contextlib import redirect_stderr
from typing import Any

import pytest

from msgnode.service.options import RENAMED, Options


def parsed(*given: str) -> Any:
    options = Options()
    options.parseOptions(given)
    return options.loaded


def test_option_that_may_be_repeated_adds_up() -> None:
    """
    An option that may be repeated adds up; `--admin` is the key `listen` of its table.
    """
    config = parsed("--lines", "tcp:1", "--lines=tcp:2", "--admin", "none")

    assert (["tcp:1", "tcp:2"], "none") == (config.lines, config.admin.listen)


@pytest.mark.parametrize("old, new", RENAMED.items())
@pytest.mark.parametrize("value", [["tcp:1"], []])
def test_renamed_option(old: str, new: str, value: list[str]) -> None:
    """
    An old option is refused with the name that it has now, and is not taken for that one shortened.
    """
    said = io.StringIO()
    given = [old, *value] if value else [f"{old}=tcp:1"]

    with redirect_stderr(said), pytest.raises(SystemExit) as stopped:
        parsed(*given)

    assert (2, f"msgnode: {old}: is now called {new}\n") == (stopped.value.code, said.getvalue())
    assert f"{new.removeprefix('--')}=" in Options().longOpt


@pytest.mark.parametrize(
    "given, why",
    [
        ("--nonsense", "option --nonsense not recognized"),
        ("node.toml", "expected options only, found 'node.toml'"),
    ],
)
def test_unknown_option(given: str, why: str) -> None:
    """
    An unknown option, or an argument, is refused in one line, without the list of all options.
    """
    said = io.StringIO()

    with redirect_stderr(said), pytest.raises(SystemExit) as stopped:
        parsed(given)

    expected = f"msgnode: {why}; 'twistd msgnode --help' lists the options\n"
    assert (2, expected) == (stopped.value.code, said.getvalue())
