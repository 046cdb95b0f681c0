"""
The management of policies by messages: `execute` at domain://msg-node.<domain>/policy.

Access needs an authenticated connection of a user in `policy.managers`. The policies themselves do not apply
here, so that they can never lock out the managers who must correct them.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.policy.administration.commands import PolicyCommands
from msgnode.protocol.address import Domain
from msgnode.protocol.errors import Blocked, Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.session import Connection, Session


class PolicyResponder:
    """
    The responder for the management of policies.

    The body has `method` and `params`; the reply has `value`, which is what runtimes read.
    """

    def __init__(
        self, domain: Domain, manager: Callable[[Connection], str], commands: PolicyCommands
    ) -> None:
        self.address = f"{domain.node}/policy"
        self._manager = manager
        self._commands = commands

    def respond(self, message: Message, session: Session) -> Deferred[Message]:
        """
        The reply with code 200 and `value`. An error may have `problems`.
        """
        who = self._manager(message.origin)  # of this connection, not of the session
        if not who:
            raise Blocked("only a policy manager may do this: policy.managers names them", 403)
        if message.type.lower() != "execute":
            raise Rejected(f"policies understand execute, not {message.type!r}"[:200])
        body = message.fields()
        method, params = body.get("method"), body.get("params") or {}
        if not isinstance(method, str):
            raise Rejected(f"'method' must be a name, not {method!r}"[:200])
        if not isinstance(params, dict):
            raise Rejected(f"'params' must be an object, not {params!r}"[:200])
        asked = self._commands.ask(method, params, who)
        return asked.addCallback(_value, message)


def _value(value: Any, message: Message) -> Message:
    return message.reply({"code": 200, "type": "execute", "value": value})
