"""
Actions on the node: drain and undrain, reload, probe.
"""

from typing import Any

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import succeed
from twisted.internet.task import LoopingCall

from msgnode.admin.actions.audited import Audited, Plan, Underway
from msgnode.admin.api.endpoint import Call, Reason
from msgnode.admin.reads.address_report import AddressReport, report_address
from msgnode.admin.reads.inspector import Inspector
from msgnode.config.schema import ConfigError
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.policy.enforcement.points import IN
from msgnode.protocol.close_codes import STOPPING, Closing
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import decode
from msgnode.sessions.session import Connection, Session

DRAINING = Closing(1013, "draining", 30)
TICK_SECONDS = 1.0
MAX_DRAIN_SECONDS = 86400.0


class DrainRequest(Reason, kw_only=True):
    """
    The body of a drain: the seconds over which open connections are closed, evenly; 0 keeps them.
    """

    seconds: float = 600.0


class ProbeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    A message that is not sent: who would hear it, and what would policies decide?
    """

    from_: str = msgspec.field(name="from")
    to: str
    type: str = "create"
    body: Any = None


class ProbeReport(msgspec.Struct):
    """
    The fate of a message that is not sent: `outcome` is `delivered`, `waiting`, `answered`, `refused` or
    `no-route`; `text` says why. `session` would send it; `to` is the report on its address; `rule` is that of
    the policies that decides, if one does. `policy` explains the decision, null without policies.
    """

    outcome: str
    text: str
    session: str
    to: AddressReport
    rule: str = ""
    policy: Any = None


class NodeActions(Service):
    """
    The actions on the node as a whole.
    """

    def __init__(self, inspector: Inspector, audited: Audited, policies: PolicyCommands) -> None:
        self._inspector = inspector
        self._node = inspector.node
        self._audited = audited
        self._policies = policies
        self._left: list[Connection] = []
        self._share = 0.0
        self._due = 0.0
        self._tick = LoopingCall(self._close_some)
        self._tick.clock = inspector.clock

    def stopService(self) -> None:
        super().stopService()
        self._stop()

    # -- drain ----------------------------------------------------------------------------

    def drain(self, call: Call) -> Any:
        """
        Tells new clients to come back later, and closes the connections that are open, evenly.
        """
        body: DrainRequest = call.body
        if not 0 <= body.seconds <= MAX_DRAIN_SECONDS:
            raise Rejected(f"seconds: expected 0 to {MAX_DRAIN_SECONDS:.0f}")
        number = len(self._node.sessions.connections) if body.seconds else 0

        def drained() -> dict[str, Any]:
            self._stop()
            self._node.turned_away = DRAINING
            if body.seconds:
                self._left = list(self._node.sessions.connections)
                self._share = len(self._left) * TICK_SECONDS / body.seconds
                self._due = 0.0
                self._tick.start(TICK_SECONDS, now=False)
            return {"connections": number, "seconds": body.seconds}

        plan = Plan("drain", [self._node.config.node], drained)
        plan.preview = {"connections": number, "seconds": body.seconds}
        return self._audited.run(call, plan, body.reason)

    def undrain(self, call: Call) -> Any:
        """
        Takes new clients again.
        """
        return self._audited.run(
            call, Plan("undrain", [self._node.config.node], self._undrain), call.body.reason
        )

    def _undrain(self) -> None:
        self._stop()
        self._node.turned_away = None

    def _stop(self) -> None:
        self._left = []
        if self._tick.running:
            self._tick.stop()

    def _close_some(self) -> None:
        connections = self._node.sessions.connections
        self._due += self._share
        while self._due >= 1 and self._left:
            self._due -= 1
            connection = self._left.pop()
            if connection in connections:
                connections.close(connection, STOPPING)
        if not self._left and self._tick.running:
            self._tick.stop()

    # -- reload ---------------------------------------------------------------------------

    def reload(self, call: Call) -> Any:
        """
        Reads the configuration again, as SIGHUP does; a mistake in it is the answer.
        """
        reloading = self._inspector.facts.reloading
        if reloading is None:
            raise Rejected("this node has nothing to reload", 501, "not-handled")

        def reloaded() -> Underway:
            verdict = reloading.reload(call.operator.name)
            if not verdict.ok:
                raise Rejected(verdict.text, 409, "malformed")
            return Underway(msgspec.to_builtins(verdict), succeed(verdict.text))

        plan = Plan("reload", [self._node.config.node], reloaded, before=self._inspector.facts.revision)
        if call.is_dry_run:
            try:
                changed, waiting = reloading.check()
            except ConfigError as why:
                raise Rejected(str(why), 409, "malformed") from None
            plan.preview = {"changed": changed, "needs_restart": waiting}
        return self._audited.run(call, plan, call.body.reason)

    # -- probe ----------------------------------------------------------------------------

    def probe(self, call: Call) -> Any:
        """
        Says what would become of a message, without sending it.
        """
        body: ProbeRequest = call.body
        node = self._node
        sender = node.routes.runtime(body.from_) or next(iter(node.routes.resolve(body.from_)), None)
        report = ProbeReport(
            "", "", sender.runtime if sender is not None else "", report_address(self._inspector, body.to)
        )
        if node.enforcement.program is None:
            return self._probed(report, "")
        fields = {"id": 1, "type": body.type, "from": body.from_, "to": body.to, "body": body.body}
        refusal = remark = ""
        if sender is not None:
            judged = node.enforcement.judge(IN, decode(msgspec.json.encode(fields)), sender)
            report.rule = judged.decision.path
            decided = f"the policies decide {judged.decision.effect}"
            refusal = "" if judged.passes else decided
            if judged.passes and not judged.is_permitted:
                remark = f"; {decided}, but are not enforced"
        asked = self._policies.ask("explain", _explained(fields, sender), call.operator.name)

        def explained(policy: Any) -> ProbeReport:
            report.policy = policy
            self._probed(report, refusal).text += remark
            return report

        return asked.addCallback(explained)

    @staticmethod
    def _probed(report: ProbeReport, refusal: str) -> ProbeReport:
        """
        The report with its outcome; `refusal` says why the policies refuse the message, if they do.
        """
        address = report.to
        ready = [each for each in address.hearers if each.state in ("attached", "superseding")]
        if not report.session:
            report.outcome, report.text = "refused", "no session here may send from that address"
        elif refusal:
            report.outcome, report.text = "refused", refusal
        elif address.is_of_node:
            report.outcome, report.text = "answered", "the node itself answers"
        elif ready:
            sessions = "1 session" if len(ready) == 1 else f"{len(ready)} sessions"
            report.outcome, report.text = "delivered", f"{sessions} would get it now"
        elif address.hearers:
            report.outcome, report.text = (
                "waiting",
                "it would wait: no session that hears it is connected and reads",
            )
        elif address.held_by:
            report.outcome, report.text = "delivered", f"{', '.join(address.held_by)} would get it"
        else:
            report.outcome, report.text = "no-route", "no session is bound to the address"
        return report


def _explained(fields: dict[str, Any], sender: Session | None) -> dict[str, Any]:
    """
    The parameters by which the policies explain a message of this sender.
    """
    found: dict[str, Any] = {"message": fields, "session": ""}
    if sender is None:
        return found
    found["session"] = sender.runtime
    if sender.connection is not None:
        found |= {"connector": sender.connection.connector, "peer": sender.connection.peer}
    if sender.identity:
        proof = sender.proof
        found["identity"] = sender.identity
        if proof is not None:
            found |= {"provider": proof.idp, "scopes": list(proof.scopes)}
    return found
