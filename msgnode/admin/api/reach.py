"""
Reach of endpoints in a domain of several nodes: one node is asked by its name, or all of them, or the one
that has what the request is about.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred, succeed
from twisted.python.failure import Failure

from msgnode.admin.access.named_tokens import ADMIN, OPERATOR, VIEWER
from msgnode.admin.actions.audited import ActionResult, NotKept, check_confirmed
from msgnode.admin.api.endpoint import CONFIRMED, EVERY_NODE, HOLDER, Call, Endpoint, read_query
from msgnode.cluster.operator_requests import NodeAnswer, Operator, OperatorRequests
from msgnode.protocol.errors import Rejected

ALL = "all"
READ_SECONDS = 5.0  # within which other nodes must answer
ACT_SECONDS = 15.0
VIA_NODE = "node"


class Reach:
    """
    The nodes of the domain, as the endpoints reach them.
    """

    def __init__(self, requests: OperatorRequests, endpoints: Iterable[Endpoint]) -> None:
        self._requests = requests
        self._endpoints = {(each.verb, each.path): each for each in endpoints}
        for each in self._endpoints.values():
            if each.is_read or each.reach:
                requests.offer(verb_of(each), partial(self._asked, each), *roles_with(each.role))

    def act(self, endpoint: Endpoint, call: Call) -> Deferred[Any]:
        """
        The answer of the endpoint, at the nodes that it reaches.
        """
        must_confirm = endpoint.confirms and not call.is_dry_run and call.confirm != CONFIRMED
        if must_confirm and self._others():
            tried = self.act(endpoint, call._replace(is_dry_run=True))
            return tried.addCallback(self._act_if_confirmed, endpoint, call)
        done = maybeDeferred(endpoint.act, call)
        if endpoint.reach == HOLDER and self._others():
            done.addErrback(self._ask_holder, endpoint, call)
            done.addCallbacks(self._do_also, self._do_also_not_kept, (endpoint, call), {}, (endpoint, call))
        elif endpoint.reach == EVERY_NODE and self._others():
            self._then_tell_others(done, endpoint, call)
            if endpoint.verb == "DELETE":
                done.addErrback(self._lift_elsewhere, endpoint, call)
        return done

    def ask(
        self, where: str, endpoint: Endpoint, path: dict[str, str], fields: dict[str, str], operator: Operator
    ) -> Deferred[Any]:
        """
        The answer of the node with this name, or of all nodes by their names. Raises Rejected.
        """
        asked, verb = {"path": path, "query": fields}, verb_of(endpoint)
        if where == ALL:
            everywhere = self._requests.ask_all(verb, asked, operator, READ_SECONDS)
            return everywhere.addCallback(
                lambda found: {"nodes": {name: answer.report() for name, answer in found.items()}}
            )
        names = {name.rpartition("/")[2]: name for name in self._requests.nodes()}
        name = where if where in self._requests.nodes() else names.get(where, "")
        if not name:
            text = f"there is no node {where[:80]!r} in this domain; there are {', '.join(sorted(names))}"
            raise Rejected(text, 404, "not-found")
        return self._requests.ask(name, verb, asked, operator, READ_SECONDS).addCallback(_value)

    def _others(self) -> list[str]:
        return self._requests.nodes()[1:]

    def _ask_others(self, endpoint: Endpoint, call: Call) -> Deferred[dict[str, NodeAnswer]]:
        asked = {
            "path": call.path,
            "query": msgspec.to_builtins(call.query),
            "body": msgspec.to_builtins(call.body),
            "dry_run": call.is_dry_run,
            "confirm": call.confirm,
        }
        names, verb = self._others(), verb_of(endpoint)
        seconds = READ_SECONDS if endpoint.is_read else ACT_SECONDS
        requests = [self._requests.ask(name, verb, asked, call.operator, seconds) for name in names]
        return DeferredList(requests).addCallback(
            lambda answers: {name: answer for name, (_, answer) in zip(names, answers, strict=True)}
        )

    def _ask_holder(self, why: Failure, endpoint: Endpoint, call: Call) -> Any:
        """
        Asks the other nodes for what is not here.
        """
        error = why.value
        if not isinstance(error, Rejected) or error.reason != "not-found" or call.via == VIA_NODE:
            return why

        def answered(found: dict[str, NodeAnswer]) -> Any:
            for name, answer in found.items():
                if answer.reason != "not-found" and answer.has_answered:
                    value = _value(answer)
                    return {**value, "node": name} if isinstance(value, dict) else value
            silent = [name for name, answer in found.items() if not answer.has_answered]
            if silent:
                text = f"{error}; these nodes did not answer: {', '.join(silent)}"
                raise Rejected(text, 503, "no-path")
            return why

        return self._ask_others(endpoint, call).addCallback(answered)

    def _do_also(self, result: Any, endpoint: Endpoint, call: Call) -> Any:
        """
        Asks the endpoint that belongs to this one, too; the result says at which nodes it was done.
        """
        wanted = None if call.is_dry_run or call.via == VIA_NODE else endpoint.also(call)
        if wanted is None:
            return result
        path, body = wanted
        other = self._endpoints["POST", path]
        asked = call._replace(path={}, query=other.query(), body=body, confirm=CONFIRMED)
        details = result["details"] if isinstance(result, dict) else result.details

        def done(found: ActionResult) -> Any:
            details["nodes"] = found.details.get("nodes", {})
            return result

        def failed(why: Failure) -> Any:
            why.trap(Rejected)
            details["nodes"] = {self._requests.node: str(why.value)}
            return result

        return self.act(other, asked).addCallbacks(done, failed)

    def _do_also_not_kept(self, why: Failure, endpoint: Endpoint, call: Call) -> Any:
        """
        Asks the endpoint that belongs to this one, too, if this one is in effect but could not be written to
        the disk of the node that has it.
        """
        error = why.value
        if not isinstance(error, Rejected) or error.reason != "disk":
            return why

        also = maybeDeferred(self._do_also, ActionResult(done=0), endpoint, call)
        return also.addCallback(lambda result: _with_others(why, result.details.get("nodes", {})))

    def _act_if_confirmed(self, tried: ActionResult, endpoint: Endpoint, call: Call) -> Deferred[Any]:
        check_confirmed(endpoint.confirms, tried.done, call.confirm)
        call = call._replace(confirm=CONFIRMED)
        return self._then_tell_others(maybeDeferred(endpoint.act, call), endpoint, call)

    def _then_tell_others(self, done: Deferred[Any], endpoint: Endpoint, call: Call) -> Deferred[Any]:
        told = (endpoint, call)
        return done.addCallbacks(self._tell_others, self._tell_others_not_kept, told, {}, told)

    def _tell_others_not_kept(self, why: Failure, endpoint: Endpoint, call: Call) -> Any:
        """
        Tells the others of what is in effect here, although this node could not write it to disk.
        """
        error = why.value
        if not isinstance(error, NotKept) or call.via == VIA_NODE:
            return why

        told = self._tell_others(error.result, endpoint, call)
        return told.addCallback(lambda result: _with_others(why, result.details["nodes"]))

    def _tell_others(self, result: ActionResult, endpoint: Endpoint, call: Call) -> Deferred[ActionResult]:
        if call.via == VIA_NODE:
            return succeed(result)

        def told(found: dict[str, NodeAnswer]) -> ActionResult:
            nodes: dict[str, Any] = {}
            for name, answer in found.items():
                if endpoint.verb == "DELETE" and answer.reason == "not-found":
                    nodes[name] = 0  # there was nothing to lift
                    continue
                if answer.code != 200:
                    nodes[name] = answer.text
                    continue
                nodes[name] = answer.value["done"]
                result.audit = result.audit or answer.value["audit"]
                result.done += answer.value["done"]
                known = set(result.targets)
                result.targets += [target for target in answer.value["targets"] if target not in known]
            if not endpoint.confirms:  # its targets are no sessions of one node, but the same at all nodes
                result.done = len(result.targets)
            result.details = {**result.details, "nodes": nodes}
            return result

        return self._ask_others(endpoint, call).addCallback(told)

    def _lift_elsewhere(self, why: Failure, endpoint: Endpoint, call: Call) -> Any:
        """
        Lifts at the other nodes what is not here: one of them may not have been reached the last time.
        """
        error = why.value
        if not isinstance(error, Rejected) or error.reason != "not-found" or call.via == VIA_NODE:
            return why
        nothing = ActionResult(done=0, dry_run=call.is_dry_run)

        def lifted(result: ActionResult) -> Any:
            silent = [name for name, done in result.details["nodes"].items() if isinstance(done, str)]
            if result.done:
                return result
            if silent:
                text = f"{error}; these nodes did not answer: {', '.join(silent)}"
                raise Rejected(text, 503, "no-path")
            return why

        return self._tell_others(nothing, endpoint, call).addCallback(lifted)

    @staticmethod
    def _asked(endpoint: Endpoint, params: dict[str, Any], operator: Operator) -> Any:
        """
        The answer to a request of another node.
        """
        path, fields, body = params.get("path"), params.get("query"), params.get("body")
        if not isinstance(path, dict) or not isinstance(fields, dict):
            raise Rejected("expected path and query")
        query = read_query(endpoint.query, fields)
        if endpoint.body is not None:
            try:
                body = msgspec.convert(body, endpoint.body)
            except msgspec.ValidationError as why:
                raise Rejected(f"the body: {why}"[:300]) from None
        dry_run, confirm = params.get("dry_run") is True, params.get("confirm")
        confirm = confirm if isinstance(confirm, int) else None
        return endpoint.act(Call(operator, operator.node, VIA_NODE, path, query, body, dry_run, confirm))


def verb_of(endpoint: Endpoint) -> str:
    """
    The verb by which nodes ask each other for this endpoint.
    """
    verb = "" if endpoint.verb == "GET" else f"{endpoint.verb} "
    return f"admin.{verb}{endpoint.path}"


def roles_with(role: str) -> tuple[str, ...]:
    """
    The roles whose holders may use an endpoint for `role`.
    """
    return {VIEWER: (VIEWER, OPERATOR, ADMIN), OPERATOR: (OPERATOR, ADMIN)}.get(role, (role,))


def _value(answer: NodeAnswer) -> Any:
    if answer.code != 200:
        raise Rejected(answer.text, answer.code, answer.reason)
    return answer.value


def _with_others(why: Failure, nodes: dict[str, Any]) -> Failure:
    """
    The failure, which says also at which of these nodes the action was not done.
    """
    error: Any = why.value
    texts = [
        f"{name}: {text}" for name, text in nodes.items() if isinstance(text, str) and text != str(error)
    ]
    if not texts:
        return why
    return Failure(Rejected(f"{error}; at other nodes: {'; '.join(texts)}", error.code, error.reason))
