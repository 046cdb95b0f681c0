"""
The definitions of records: read before the node starts, and again at SIGHUP.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.records.known_records import KnownRecords, RecordSet, read_records
from msgnode.config.schema import ConfigError
from msgnode.config.sections import RecordsOptions
from msgnode.records.problems import DefinitionsRefused

log = Logger()


class RecordsLoader:
    """
    The reader of the configured definitions. `run` runs a function in a thread, for it may take seconds.
    """

    def __init__(
        self, options: RecordsOptions, known: KnownRecords, run: Callable[..., Deferred[RecordSet]]
    ) -> None:
        self._options = options
        self._known = known
        self._run = run
        self._is_reading = self._is_changed = False

    def load(self) -> None:
        """
        Reads the definitions now. ConfigError with all errors in them.
        """
        try:
            self._known.use(read_records(self._options.dir, self._options.public))
        except (DefinitionsRefused, OSError) as why:
            raise ConfigError(f"records.dir: {_in_words(why)}") from None

    def reload(self) -> None:
        """
        Reads the definitions again, in a thread; if they have errors, the node keeps those it has.
        """
        if self._is_reading:
            self._is_changed = True
            return
        self._is_reading = True
        read = self._run(read_records, self._options.dir, tuple(self._options.public))
        read.addCallbacks(self._use, self._refuse)
        read.addErrback(lambda why: log.failure("the definitions of records could not be used", why))
        read.addBoth(self._finished)

    def _use(self, records: RecordSet) -> None:
        before = self._known.digest
        self._known.use(records)
        verdict = "unchanged" if records.digest == before else "replaced"
        log.info(
            "the definitions of records are {verdict}: {number} records, digest {digest}",
            verdict=verdict,
            number=len(records.definitions),
            digest=records.digest[:16],
        )

    def _refuse(self, why: Failure) -> None:
        why.trap(DefinitionsRefused, OSError)
        self._known.refused_reloads += 1
        log.error(
            "the definitions of records have errors, the old ones stay: {why}", why=_in_words(why.value)
        )

    def _finished(self, done: Any) -> None:
        self._is_reading = False
        if self._is_changed:
            self._is_changed = False
            self.reload()


def _in_words(why: BaseException | None) -> str:
    if isinstance(why, OSError):
        return f"{why.filename}: cannot be read: {why.strerror}"
    return str(why)
