"""
The log as JSON, and its levels.
"""

import io
import json

import pytest
from twisted.logger import Logger, LogPublisher

from msgnode.config.schema import ConfigError
from msgnode.service.process.log_format import check_log_options, levels_of, make_observer
from msgnode.structures.log_levels import LogLevels


def logged(format: str, level: str) -> str:
    output = io.StringIO()
    log = Logger("msgnode.x", observer=LogPublisher(make_observer(format, LogLevels(level), output)))
    log.debug("debug {n}", n=1)
    log.info("info {name}", name="a\nb")
    try:
        raise ValueError("no")
    except ValueError:
        log.failure("it failed")
    return output.getvalue()


def test_json_is_one_object_a_line() -> None:
    """
    Each event is one line of JSON with time, level, namespace and text; a failure has its traceback.
    """
    info, failure = map(json.loads, logged("json", "info").splitlines())

    assert ("info", "msgnode.x", "info a\nb") == (info["level"], info["namespace"], info["text"])
    assert info["time"].endswith("+00:00")
    assert ("critical", "it failed") == (failure["level"], failure["text"])
    assert "ValueError: no" in failure["traceback"]


def test_levels() -> None:
    """
    Events below the level are left out; text is as twistd writes it.
    """
    assert "debug 1" in logged("text", "debug")
    assert "info a" not in logged("text", "error") and "it failed" in logged("text", "error")


def test_a_namespace_may_have_a_level_of_its_own() -> None:
    """
    It is that of the namespaces below it, too; without a level of their own they have that of the log.
    """
    output, levels = io.StringIO(), levels_of("text", None)
    assert levels is not None and levels_of(None, None) is None
    observer = LogPublisher(make_observer("text", levels, output))
    levels.by_namespace = {"msgnode.x": "debug", "msgnode.y": "error"}

    for name in ("msgnode.x", "msgnode.x.deep", "msgnode.xy", "msgnode.y", "other"):
        log = Logger(name, observer=observer)
        log.debug(f"debug of {name}.")
        log.info(f"info of {name}.")

    said = [line.partition("] ")[2] for line in output.getvalue().splitlines()]
    assert said == [
        "debug of msgnode.x.",
        "info of msgnode.x.",
        "debug of msgnode.x.deep.",
        "info of msgnode.x.deep.",
        "info of msgnode.xy.",
        "info of other.",
    ]


def test_unknown_values_are_refused() -> None:
    """
    An unknown format or level is refused with the known ones.
    """
    check_log_options(None, None)
    with pytest.raises(ConfigError, match="--log-format: expected one of text, json, found 'xml'"):
        check_log_options("xml", None)
    with pytest.raises(ConfigError, match=r"--log-level: expected one of debug, .*, found 'loud'"):
        check_log_options("json", "loud")
