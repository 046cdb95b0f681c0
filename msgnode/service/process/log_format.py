"""
The node's log as JSON lines, or with fewer levels, on standard output: `--log-format` and `--log-level`.

Without either option the log is twistd's.
"""

import json
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from twisted.application.service import MultiService
from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    formatEvent,
    formatEventAsClassicLogText,
)

from msgnode.config.schema import ConfigError
from msgnode.structures.log_levels import LEVELS, LogLevels

FORMATS = ("text", "json")


def json_line(event: LogEvent) -> str:
    """
    Returns an event as one line of JSON: time, level, namespace, text, and the traceback of a failure; "" for
    an event that has neither of the latter.
    """
    text, failure = formatEvent(event), event.get("log_failure")
    if not text and failure is None:
        return ""
    level = event.get("log_level")
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(event.get("log_time", 0.0), UTC).isoformat(timespec="milliseconds"),
        "level": level.name if level is not None else "info",
        "namespace": str(event.get("log_namespace", "")),
        "text": text,
    }
    if failure is not None:
        line["traceback"] = failure.getTraceback()
    return json.dumps(line) + "\n"


def make_observer(format: str, levels: LogLevels, output: TextIO) -> ILogObserver:
    """
    Returns an observer of the whole log.
    """
    observer = FileLogObserver(output, json_line if format == "json" else formatEventAsClassicLogText)
    filtering: ILogObserver = FilteringLogObserver(observer, [levels])
    return filtering


def levels_of(format: str | None, level: str | None) -> LogLevels | None:
    """
    Returns the levels of a log with these options; None without either: the log is twistd's.
    """
    return None if format is None and level is None else LogLevels(level or "info")


def check_log_options(format: str | None, level: str | None) -> None:
    """
    Raises ConfigError if a value is unknown.
    """
    for name, value, known in (("--log-format", format, FORMATS), ("--log-level", level, LEVELS)):
        if value is not None and value not in known:
            raise ConfigError(f"{name}: expected one of {', '.join(known)}, found {value!r}")


class LoggingService(MultiService):
    """
    A root service that gives its application an observer; twistd takes it in the place of its own.

    `log_levels` is None if the log is twistd's.
    """

    log_format: str | None = None
    log_levels: LogLevels | None = None

    def setServiceParent(self, parent: Any) -> None:
        if self.log_levels is not None:
            # twistd replaces sys.stdout by a logger later.
            observer = make_observer(self.log_format or "text", self.log_levels, sys.stdout)
            parent.setComponent(ILogObserver, observer)
        super().setServiceParent(parent)
