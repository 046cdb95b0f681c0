"""
Audit trail of what is no action of the API: start and stop, reloads by signal, policy changes, traces, and
tokens that come from another peer than before.
"""

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from msgnode.admin.access.named_tokens import SIGNAL
from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.node_facts import NodeFacts
from msgnode.cluster.operator_requests import Operator
from msgnode.config.reload import ReloadVerdict
from msgnode.storage.audit_log import AuditLog


class AuditTrail(Service):
    """
    A service that notes in the audit log what happens without an audited action.
    """

    def __init__(self, audit: AuditLog, facts: NodeFacts, tokens: AdminTokens) -> None:
        self._audit = audit
        self._facts = facts
        tokens.moved = self._moved

    def startService(self) -> None:
        super().startService()
        self._audit.restore()
        self._note("start", f"version {self._facts.version}")
        reloading = self._facts.reloading
        if reloading is None:
            return
        before = reloading.reloaded

        def reloaded(verdict: ReloadVerdict) -> None:
            before(verdict)
            if verdict.by == SIGNAL:  # a reload by the API has its own lines
                self._audit.note(
                    who=SIGNAL, via=SIGNAL, action="reload", result=verdict.text[:1000], ok=verdict.ok
                )

        reloading.reloaded = reloaded

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return self._note("stop", "")

    def _note(self, action: str, result: str) -> Deferred[None]:
        return self._audit.note(who="", via=SIGNAL, action=action, result=result, ok=True)

    def _moved(self, operator: Operator, peer: str, before: str) -> None:
        self._audit.note(
            who=operator.name,
            peer=peer,
            via="api",
            action="token use",
            before=before,
            result="from another peer",
            ok=True,
        )

    def act(
        self,
        operator: Operator,
        peer: str,
        action: str,
        target: str,
        reason: str = "",
        result: Any = "done",
        via: str = "api",
    ) -> None:
        """
        Notes what an operator did by an interface that has no dry run.
        """
        self._audit.note(
            who=operator.name,
            roles=list(operator.roles),
            peer=peer,
            via=via,
            action=action,
            target=[target],
            reason=reason[:200],
            result=str(result)[:300],
            ok=result == "done",
        )
