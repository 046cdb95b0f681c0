"""
Levels of the log by namespace, which can be changed while the process runs.
"""

from typing import Any

from twisted.logger import ILogFilterPredicate, LogEvent, LogLevel, PredicateResult
from zope.interface import implementer

LEVELS = ("debug", "info", "warn", "error", "critical")  # each is also a rank


@implementer(ILogFilterPredicate)
class LogLevels:
    """
    A filter of log events: of each namespace, and those below it at a dot, those of a level and above.

    `level` is that of namespaces that have none of their own.
    """

    def __init__(self, level: str = "info") -> None:
        self.level = level
        self.by_namespace: dict[str, str] = {}

    def __call__(self, event: LogEvent) -> Any:
        found: Any = event.get("log_level")
        rank = LEVELS.index(found.name) if found is not None else LEVELS.index(LogLevel.info.name)
        if rank < LEVELS.index(self.of(str(event.get("log_namespace", "")))):
            return PredicateResult.no
        return PredicateResult.maybe

    def of(self, namespace: str) -> str:
        """
        The level of a namespace: its own, or that of the nearest one above it.
        """
        if not self.by_namespace:
            return self.level
        while namespace:
            if namespace in self.by_namespace:
                return self.by_namespace[namespace]
            namespace = namespace.rpartition(".")[0]
        return self.level
