"""
The catalogue of records on the bus, for clients that a policy names.
"""

from collections.abc import Callable

from msgnode.bus.records.known_records import KnownRecords
from msgnode.protocol.address import Domain
from msgnode.protocol.errors import Blocked, NotOffered, Rejected
from msgnode.protocol.message import Message
from msgnode.records.writer import as_json
from msgnode.sessions.session import Session


class RecordsResponder:
    """
    The responder that lists the records that the node knows; `is_named` says whether a rule names it.
    """

    def __init__(
        self, domain: Domain, known: KnownRecords, is_named: Callable[[Message, Session], bool]
    ) -> None:
        self.address = f"{domain.node}/records"
        self._known = known
        self._is_named = is_named

    def respond(self, message: Message, session: Session) -> Message:
        """
        Answers 200 with the list as `value`, or with the definition whose id is `body.resource`.
        """
        if not self._is_named(message, session):
            raise Blocked(f"only clients that a policy names may read {self.address}", 403)
        if message.type.lower() != "read":
            raise NotOffered(f"{self.address} understands read, not {message.type!r}"[:200])
        id = message.field("resource")
        if id is None:
            return message.reply({"code": 200, "value": self._known.index})
        record = self._known.find(id) if isinstance(id, str) else None
        if record is None:
            raise Rejected(f"this node knows no record {id!r}"[:200], 404)
        return message.reply({"code": 200, "value": as_json(record)})
