"""
The first thing a node does, and the last: what there was before is there again, and the spool is closed.
"""

from twisted.application.service import Service
from twisted.logger import Logger

from msgnode.config.schema import ConfigError
from msgnode.node import Node
from msgnode.restore import doubt, restore
from msgnode.storage.session_store import Store
from msgnode.storage.spool import Spool
from msgnode.storage.spool_recovery import Damaged

log = Logger()


class Restart(Service):
    """
    What there was before is there again before anybody is heard; the spool is closed after the last word.
    """

    def __init__(self, node: Node, store: Store, spool: Spool) -> None:
        self._node = node
        self._store = store
        self._spool = spool

    def startService(self) -> None:
        super().startService()
        directory = self._node.config.state
        rows = self._store.open()
        try:
            owed = self._spool.open()
        except Damaged as why:
            raise ConfigError(f"state: {why}; 'msgnode state repair {directory}' moves it aside") from why
        except OSError as why:
            where = f"state: cannot write in {directory}"
            raise ConfigError(f"{where}: {why.strerror}; name another directory, or none") from why
        restore(self._node, rows, owed)
        if self._spool.incomplete:
            log.warn(
                "state in {directory}: something is missing; all sessions are told",
                directory=directory,
            )
            doubt(self._node, self._spool)
        log.info(
            "state in {directory}: {sessions} sessions, {addresses} addresses",
            directory=directory,
            sessions=len(self._node.sessions),
            addresses=len(self._node.routes),
        )

    def stopService(self) -> None:
        super().stopService()
        self._node.sessions.ledger.settle(now=True)
        if self._spool.failing is not None:
            log.error("what waits is not on disk: {why}", why=str(self._spool.failing))
        self._spool.close()
