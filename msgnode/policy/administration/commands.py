"""
The management commands of policies, used by HTTP and by messages.

admin/policy_api.py (HTTP) and responder.py (the bus) authenticate the caller; this module carries out the
command.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred

from msgnode.policy.administration.document_edit import DocumentEditor, Files, parse, to_text
from msgnode.policy.administration.policy_store import PolicyRejected, PolicyStore
from msgnode.policy.administration.versions import Version
from msgnode.policy.decision.attribute import OWNERS
from msgnode.policy.decision.context import Identity
from msgnode.policy.decision.problems import InvalidValue
from msgnode.policy.enforcement.decision_log import as_dict
from msgnode.policy.enforcement.enforcement import PolicyEnforcement
from msgnode.policy.enforcement.points import POINTS
from msgnode.policy.language.program import Program
from msgnode.policy.language.test_vectors import shown_identity
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import decode

Params = Mapping[str, Any]

EXPLAIN = (
    "message",
    "document",
    "point",
    "identity",
    "provider",
    "scopes",
    "session",
    "fromOwned",
    "topicOwner",
    "topicOwnerUser",
    "messageIdentity",
    "connector",
    "peer",
)


class PolicyCommands:
    """
    The management methods of the policies.

    `ask(method, params, who)` returns the value, or raises PolicyRejected.

    Methods that change something also take `ifMatch` and `force`.
    """

    def __init__(self, policies: PolicyStore, enforcement: PolicyEnforcement) -> None:
        self._policies = policies
        self._enforcement = enforcement
        self.methods: dict[str, Callable[[Params, str], Any]] = {
            "policies": self.policies,
            "savePolicies": self.save_policies,
            "policy": self.policy,
            "addPolicy": self.add_policy,
            "removePolicy": self.remove_policy,
            "policyOf": self.policy_of,
            "addPolicyTo": self.add_policy_to,
            "removePolicyOf": self.remove_policy_of,
            "patchPolicy": self.patch_policy,
            "groups": self.groups,
            "getGroupsNames": self.group_names,
            "createGroup": self.create_group,
            "deleteGroup": self.delete_group,
            "addToGroup": self.add_to_group,
            "removeFromGroup": self.remove_from_group,
            "validate": self.validate,
            "explain": self.explain,
            "dryRun": self.dry_run,
            "versions": self.versions,
            "rollback": self.rollback,
            "decisions": self.decisions,
            "stats": self.stats,
        }

    def ask(self, method: str, params: Params, who: str) -> Deferred[Any]:
        """
        Call a method. Fires with a JSON value. Fails with PolicyRejected.
        """
        act = self.methods.get(method)
        if act is None:
            known = ", ".join(self.methods)
            raise PolicyRejected(f"there is no method {method[:80]!r}; known are {known}", 404)
        return maybeDeferred(act, params, who)

    # -- documents -----------------------------------------------------------

    def policies(self, params: Params, who: str) -> dict[str, Any]:
        live = self._policies.live
        if live is None:
            return {"version": None, "document": []}
        documents = [parse(text) for _, text in live.files]
        if len(documents) == 1:
            return {"version": live.summary(), "document": documents[0]}
        return {"version": live.summary(), "documents": documents}

    def save_policies(self, params: Params, who: str) -> Deferred[Any]:
        """
        Replace everything by `document`.
        """
        return self._push(params, _needed(params, "document"), who)

    def policy(self, params: Params, who: str) -> Any:
        """
        The policy set with the id `key`.
        """
        return self._policies.content().set(_key(params))

    def add_policy(self, params: Params, who: str) -> Deferred[Any]:
        """
        Add or replace the policy set `policy`, by its id.
        """
        policy = _needed(params, "policy")
        key, algorithm = params.get("key"), params.get("combiningAlgorithm")
        return self._edit(params, lambda content: content.put(policy, key, algorithm), who)

    def remove_policy(self, params: Params, who: str) -> Deferred[Any]:
        key = _key(params)
        return self._edit(params, lambda content: content.remove(key), who)

    def policy_of(self, params: Params, who: str) -> Any:
        """
        The policy `policyKey` of the set `key`.
        """
        return self._policies.content().policy(_key(params), _key(params, "policyKey"))

    def add_policy_to(self, params: Params, who: str) -> Deferred[Any]:
        """
        Add or replace the policy `policyKey` of the set `key` by `policy`.
        """
        key, id, policy = _key(params), _key(params, "policyKey"), _needed(params, "policy")
        return self._edit(params, lambda content: content.put_policy(key, id, policy), who)

    def remove_policy_of(self, params: Params, who: str) -> Deferred[Any]:
        key, id = _key(params), _key(params, "policyKey")
        return self._edit(params, lambda content: content.remove_policy(key, id), who)

    def patch_policy(self, params: Params, who: str) -> Deferred[Any]:
        """
        Change `fields` of the set `key`, or of its policy `policyKey`; null removes a field.
        """
        key, fields = _key(params), _needed(params, "fields")
        id = _key(params, "policyKey") if "policyKey" in params else None
        if not isinstance(fields, dict) or "id" in fields:
            raise PolicyRejected(
                "'fields' must be an object with the fields to change; 'id' cannot change", 400
            )
        return self._edit(params, lambda content: content.patch(key, id, fields), who)

    # -- groups ----------------------------------------------------------------

    def groups(self, params: Params, who: str) -> dict[str, list[str]]:
        return self._policies.content().groups

    def group_names(self, params: Params, who: str) -> list[str]:
        return list(self._policies.content().groups)

    def create_group(self, params: Params, who: str) -> Deferred[Any]:
        """
        Create the group `groupName`, optionally with `members`.
        """
        name, members = _text(params, "groupName"), params.get("members", [])
        if not isinstance(members, list):
            raise PolicyRejected(f"'members' must be a list, not {members!r}"[:200], 400)

        def create(content: DocumentEditor) -> None:
            if name in content.groups:
                raise PolicyRejected(f"there is a group {name!r} already", 409)
            content.groups[name] = members

        return self._edit(params, create, who)

    def delete_group(self, params: Params, who: str) -> Deferred[Any]:
        name = _text(params, "groupName")

        def delete(content: DocumentEditor) -> None:
            content.group(name)
            del content.groups[name]

        return self._edit(params, delete, who)

    def add_to_group(self, params: Params, who: str) -> Deferred[Any]:
        """
        Add `userEmail` to the group `groupName`.
        """
        name, user = _text(params, "groupName"), _text(params, "userEmail")

        def add(content: DocumentEditor) -> None:
            members = content.group(name)
            if user not in members:
                members.append(user)

        return self._edit(params, add, who)

    def remove_from_group(self, params: Params, who: str) -> Deferred[Any]:
        name, user = _text(params, "groupName"), _text(params, "userEmail")

        def remove(content: DocumentEditor) -> None:
            members = content.group(name)
            if user not in members:
                raise PolicyRejected(f"{user!r} is not in that group", 404)
            members.remove(user)

        return self._edit(params, remove, who)

    # -- validation, explanation, dry run -------------------------------------------

    def validate(self, params: Params, who: str) -> Deferred[Any]:
        """
        Validate `document`: its warnings. Fails with PolicyRejected and its errors.
        """
        checked = self._policies.check(_files(_needed(params, "document")))
        return checked.addCallback(
            lambda program: {"revision": program.revision, "lints": [str(lint) for lint in program.lints]}
        )

    def explain(self, params: Params, who: str) -> Deferred[Any]:
        """
        Explain the decision about `message`. The other parameters describe its sender and connection.
        """
        unknown = [name for name in params if name not in EXPLAIN]
        if unknown:
            known = ", ".join(EXPLAIN)
            raise PolicyRejected(f"explain does not know {', '.join(unknown)}; it knows {known}"[:500], 400)
        point = params.get("point", "in")
        if point not in POINTS:
            raise PolicyRejected(f"'point' must be one of {', '.join(POINTS)}, not {point!r}"[:200], 400)
        given = _needed(params, "message")
        try:
            message = decode(given if isinstance(given, bytes) else json.dumps(given).encode())
        except Malformed as why:
            raise PolicyRejected(f"'message': {why}"[:300], why.code) from None
        try:
            message.shown = shown_identity(params.get("messageIdentity"))
        except InvalidValue as why:
            raise PolicyRejected(f"'messageIdentity': {why}"[:300], 400) from None
        connector, peer, session = (_text(params, name, "") for name in ("connector", "peer", "session"))
        identity, owned, topic = _identity(params), _owned(params), _topic(params)

        def explained(program: Program) -> Any:
            asked = self._enforcement.contexts.build(
                point,
                message,
                identity=identity,
                owned=None if owned is None else lambda: owned,
                topic=lambda to: topic,
                connector=connector,
                peer=peer,
                session=session,
            )
            try:
                return program.explain(asked).to_builtins()
            except Malformed as why:
                raise PolicyRejected(f"'message': {why}"[:300], why.code) from None

        if "document" in params:
            return self._policies.check(_files(params["document"])).addCallback(explained)
        if self._enforcement.program is None:
            raise PolicyRejected("no policies are live; name some in 'document'", 404)
        return maybeDeferred(explained, self._enforcement.program)

    def dry_run(self, params: Params, who: str) -> Any:
        """
        Start a dry run with `document` next to the live policies, or end it with null. Returns the
        differences so far.
        """
        if "document" not in params:
            return self._enforcement.dry_run_report()
        if params["document"] is None:
            self._enforcement.set_dry_run(None)
            return self._enforcement.dry_run_report()

        def begin(program: Program) -> Any:
            self._enforcement.set_dry_run(program)
            return self._enforcement.dry_run_report()

        return self._policies.check(_files(params["document"])).addCallback(begin)

    # -- versions --------------------------------------------------------------

    def versions(self, params: Params, who: str) -> list[dict[str, Any]]:
        return [version.summary() for version in self._policies.versions]

    def rollback(self, params: Params, who: str) -> Deferred[Any]:
        """
        Roll back to the version `number`.
        """
        number = params.get("number")
        if not isinstance(number, int) or isinstance(number, bool):
            raise PolicyRejected(f"'number' must be that of a version, not {number!r}"[:200], 400)
        return self._policies.roll_back(number, who, _if_match(params)).addCallback(Version.summary)

    # -- decisions ------------------------------------------------------------------

    def decisions(self, params: Params, who: str) -> list[dict[str, Any]]:
        """
        The latest refusals, newest first.
        """
        return [as_dict(line) for line in reversed(self._enforcement.decisions.recent)]

    def stats(self, params: Params, who: str) -> dict[str, Any]:
        """
        How often each rule decided, and the rules that never did.
        """
        live, tallies = self._policies.live, list(self._enforcement.decisions)
        used = {tally.rule for tally in tallies if tally.hits}
        return {
            "version": live.summary() if live is not None else None,
            "rules": [
                {"point": t.point, "effect": t.effect, "rule": t.rule, "hits": t.hits, "last": t.last / 1e9}
                for t in sorted(tallies, key=lambda tally: -tally.hits)
            ],
            "unused": [rule for rule in self._enforcement.rules() if rule not in used],
            "failed": self._policies.failed,
            "wrong": self._policies.wrong,
        }

    # ------------------------------------------------------------------------

    def _edit(self, params: Params, change: Callable[[DocumentEditor], object], who: str) -> Deferred[Any]:
        force = params.get("force", False) is True
        edited = self._policies.edit(change, who, _if_match(params), force)
        return edited.addCallback(Version.summary)

    def _push(self, params: Params, document: Any, who: str) -> Deferred[Any]:
        force = params.get("force", False) is True
        pushed = self._policies.push(_files(document), who, _if_match(params), force)
        return pushed.addCallback(Version.summary)


def _files(document: Any) -> Files:
    return (("document", to_text(document)),)


def _if_match(params: Params) -> str | None:
    given = params.get("ifMatch")
    if given is not None and not isinstance(given, str):
        raise PolicyRejected(f"'ifMatch' must be a revision, not {given!r}"[:200], 400)
    return given


def _needed(params: Params, name: str) -> Any:
    if params.get(name) is None:
        raise PolicyRejected(f"'{name}' is missing", 400)
    return params[name]


def _text(params: Params, name: str, default: str | None = None) -> str:
    text = params.get(name, default)
    if not isinstance(text, str) or (default is None and not text):
        raise PolicyRejected(f"'{name}' must be a text, not {text!r}"[:200], 400)
    return text


def _identity(params: Params) -> Identity | None:
    user, provider = _text(params, "identity", ""), _text(params, "provider", "")
    scopes = params.get("scopes", [])
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise PolicyRejected(f"'scopes' must be a list of texts, not {scopes!r}"[:200], 400)
    if not user and (provider or scopes):
        raise PolicyRejected("'provider' and 'scopes' need an 'identity'", 400)
    return Identity(user, provider, tuple(scopes)) if user else None


def _owned(params: Params) -> bool | None:
    owned = params.get("fromOwned")
    if owned is not None and not isinstance(owned, bool):
        raise PolicyRejected(f"'fromOwned' must be true or false, not {owned!r}"[:200], 400)
    return owned


def _topic(params: Params) -> tuple[str, str] | None:
    user, owner = _text(params, "topicOwnerUser", ""), params.get("topicOwner")
    if owner is None and not user:
        return None
    if owner not in OWNERS:
        raise PolicyRejected(f"'topicOwner' must be one of {', '.join(OWNERS)}, not {owner!r}"[:200], 400)
    return owner, user


def _key(params: Params, name: str = "key") -> str:
    key = _needed(params, name)
    if not isinstance(key, str | int) or isinstance(key, bool):
        what = "policy set" if name == "key" else "policy"
        raise PolicyRejected(f"'{name}' must be the id of a {what}, not {key!r}"[:200], 400)
    return str(key)
