"""
The responder of the embedded QoS broker: reservations, and TURN credentials that carry them.
"""

from secrets import token_hex
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.backends.qos.coturn import credentials
from msgnode.backends.qos.reservation import Reservation, Wanted, session_and_parties, wanted
from msgnode.backends.qos.reservations import Notice, Reservations
from msgnode.config.sections import QoSOptions
from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.protocol.message import Message, compose
from msgnode.sessions.session import Session

RESERVATION = "/reservation"


def broker_addresses(domain: str) -> list[str]:
    """
    The addresses of a QoS broker, and of its reservations.
    """
    own = (f"domain://qos-broker.{domain}", f"domain://msg-node.{domain}/qos-broker")
    return [f"{address}{end}" for address in own for end in ("", "/", RESERVATION)]


class EmbeddedBroker:
    """
    The responder for reservations. `secret` is what it shares with coturn.
    """

    def __init__(self, options: QoSOptions, domain: str, reservations: Reservations, secret: str) -> None:
        self.addresses = broker_addresses(domain)
        self._options = options
        self._reservations = reservations
        self._secret = secret
        reservations.tell = self._tell

    def respond(self, message: Message, session: Session) -> Message | Deferred[Message]:
        fields = message.fields()
        kind, value = message.type.lower(), fields.get("value")
        if session.is_node or session.is_ephemeral:
            raise Rejected("only a session of this node can have a reservation", 403, "identity")
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise Rejected("'value' must be an object")
        id = self._id(message, fields, value)
        if kind == "create":
            return Deferred.fromCoroutine(self._create(message, value, session))
        if kind == "read":
            return self._read(message, id, session)
        if kind not in ("update", "delete"):
            raise NotOffered(f"reservations understand create, read, update and delete, not {kind!r}"[:200])
        found = self._reservations.get(id, session)
        if not found.belongs_to(session):
            raise Rejected("only its own session changes a reservation", 403, "identity")
        if kind == "update":
            return Deferred.fromCoroutine(self._update(message, value, found, session))
        return Deferred.fromCoroutine(self._delete(message, found))

    def _id(self, message: Message, fields: dict[str, Any], value: dict[str, Any]) -> str:
        """
        The reservation that is meant: `/reservation/<id>` as resource, or `value.id`; "" for none.
        """
        resource = fields.get("resource")
        is_address = isinstance(message.to, str) and message.to.endswith(RESERVATION)
        if resource is None and is_address:
            resource = RESERVATION
        if not isinstance(resource, str) or not (resource + "/").startswith(RESERVATION + "/"):
            raise NotOffered(f"the embedded QoS broker has {RESERVATION} only, not {resource!r}"[:200])
        id = resource[len(RESERVATION) + 1 :] or value.get("id", "")
        if not isinstance(id, str):
            raise Rejected("'value.id' must be the id of a reservation")
        return id

    async def _create(self, message: Message, value: dict[str, Any], session: Session) -> Message:
        application, parties = session_and_parties(value)
        made = await self._reservations.create(session, wanted(value), application, parties)
        return self._granted(message, made)

    async def _update(
        self, message: Message, value: dict[str, Any], found: Reservation, session: Session
    ) -> Message:
        before = Wanted(found.up, found.down, max(found.until - self._reservations.now(), 1))
        changed = await self._reservations.update(found, session, wanted(value, before))
        return self._granted(message, changed)

    async def _delete(self, message: Message, found: Reservation) -> Message:
        failure = await self._reservations.delete(found)
        ended = {"id": found.id}
        return message.reply({"code": 200, "value": {**ended, "relay": failure} if failure else ended})

    def _read(self, message: Message, id: str, session: Session) -> Message:
        if id:
            return self._granted(message, self._reservations.get(id, session))
        own = [each.shown() for each in self._reservations.of(session)]
        value = {"capacity": self._reservations.capacity(), "left": self._reservations.left()}
        return message.reply({"code": 200, "value": {**value, "reservations": own}})

    def _granted(self, message: Message, made: Reservation) -> Message:
        user, password = credentials(self._secret, made.id, made.until)
        server = {"urls": self._options.turn_urls, "username": user, "credential": password}
        value = {**made.shown(), "iceServers": [server], "iceTransportPolicy": "relay"}
        return message.reply({"code": 200, "value": value})

    def _tell(self, session: Session, made: Reservation, notice: Notice) -> None:
        """
        Notifies the session of a reservation that it is overused, or has been ended for that or by an
        operator.
        """
        value = {**made.shown(), "status": notice.status, "reason": notice.reason}
        if notice.used is not None:
            value["used"] = notice.used
        body = {"resource": f"{RESERVATION}/{made.id}", "value": value}
        address = f"{self.addresses[0]}{RESERVATION}"
        session.deliver(compose(f"reservation-{token_hex(4)}", "update", address, session.runtime, body))
