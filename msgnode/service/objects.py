"""
The journal of kept objects: opened before the first client connects, and closed when all have left.
"""

from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from msgnode.config.schema import ConfigError
from msgnode.node import Node
from msgnode.storage.objects.journal import ObjectJournal
from msgnode.storage.objects.segments import DIRECTORY

log = Logger()

EXPIRE_SECONDS = 60.0  # between two looks for segments that are too old, or too much


class ObjectKeeping(Service):
    """
    The service of kept objects. Without patterns it keeps nothing, and opens no file.
    """

    def __init__(self, node: Node, reactor: Any) -> None:
        self._node = node
        self._journal: ObjectJournal | None = None
        self._expiry = LoopingCall(self._expire)
        self._expiry.clock = reactor

    def startService(self) -> None:
        super().startService()
        self.apply()

    def apply(self) -> None:
        """
        Puts changed patterns into effect.
        """
        node = self._node
        if self._journal is None and node.config.objects.keep and self.running:
            self._journal = self._open()
            self._expiry.start(EXPIRE_SECONDS, now=False)
        node.objects.keep(self._journal if node.config.objects.keep else None)

    def _open(self) -> ObjectJournal:
        config, node = self._node.config, self._node
        directory = Path(config.state, DIRECTORY)
        full = config.sync == "full"
        journal = ObjectJournal(directory, config.objects, full, is_low=lambda: node.watermark.low)
        try:
            journal.open()
        except OSError as why:
            raise ConfigError(f"objects: cannot keep objects in {directory}: {why.strerror}") from why
        log.info("{number} objects are kept in {directory}", number=len(journal), directory=directory)
        return journal

    def _expire(self) -> None:
        if self._node.objects.kept is not None:
            self._node.objects.kept.expire()

    def stopService(self) -> None:
        super().stopService()
        if self._expiry.running:
            self._expiry.stop()
        if self._journal is not None:
            self._journal.close()
            self._journal = None
