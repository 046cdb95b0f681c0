"""
The registry of connectors on the bus: `read` at domain://msg-node.<domain>/connectors.
"""

from collections.abc import Callable

from msgnode.components import Components
from msgnode.protocol.address import Domain
from msgnode.protocol.errors import Blocked, NotOffered
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session


class ComponentResponder:
    """
    Lists what the node is made of to those whom a policy names; `is_named` tells whether one does.
    """

    def __init__(
        self, domain: Domain, components: Components, is_named: Callable[[Message, Session], bool]
    ) -> None:
        self.address = f"{domain.node}/connectors"
        self._components = components
        self._is_named = is_named

    def respond(self, message: Message, session: Session) -> Message:
        """
        200 with the list as `value`.
        """
        if not self._is_named(message, session):
            raise Blocked(f"only whom a policy names may read {self.address}", 403)
        if message.type.lower() != "read":
            raise NotOffered(f"connectors understand read, not {message.type!r}"[:200])
        return message.reply({"code": 200, "value": self._components.to_builtins()})
