"""
The policies' door on the bus: `execute` at domain://msg-node.<domain>/policy.

Only a connection with the verified identity of one in `policy.managers` comes
in, whatever the policies say; so they can lock nobody out who has to mend
them, and nobody's claim lets anybody in.
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

    `body: {"method", "params"}`; answered with `value`, as today's runtimes do it.
    """

    def __init__(
        self, domain: Domain, manager: Callable[[Connection], str], commands: PolicyCommands
    ) -> None:
        self.address = f"{domain.node}/policy"
        self._manager = manager
        self._commands = commands

    def respond(self, message: Message, session: Session) -> Deferred[Message]:
        """
        200 with `value`; what went wrong as an error with `problems` where there are some.
        """
        who = self._manager(message.origin)  # this connection, not one that came before or after
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
