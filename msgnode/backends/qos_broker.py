"""
The QoS responder: TURN servers and their credentials, from the QoS broker.

The broker issues credentials to any caller that names a client, and revokes the client's previous ones.
Therefore a client name works only in the session that obtained it. Calls that change accounts at the broker
are not forwarded, and the account is always that of this domain.
"""

import re
from typing import Any
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred

from msgnode.backends.http_client import BackendClient, Response
from msgnode.backends.qos.embedded_broker import RESERVATION, broker_addresses
from msgnode.config.sections import QoSOptions
from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session

NAME = "QoS broker"
MAX_CLIENTS = 100  # client names remembered for a session
MAX_NAME_CHARS = 200  # characters of a name
_TURN = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
_QUOTAS = {"audio": "audioQuota", "video": "videoQuota", "data": "dataQuota"}


class QoSBroker:
    """
    The responder for QoS: TURN servers and their credentials.

    `connectivity` calls the service for last-hop connectivity, if there is one.
    """

    def __init__(
        self,
        options: QoSOptions,
        domain: str,
        broker: BackendClient,
        connectivity: BackendClient | None = None,
    ) -> None:
        self.addresses = broker_addresses(domain)
        self._options = options
        self._broker = broker
        self._connectivity = connectivity
        self._clients: WeakKeyDictionary[Session, dict[str, None]] = WeakKeyDictionary()

    def respond(self, message: Message, session: Session) -> Deferred[Message]:
        fields = message.fields()
        kind, resource = message.type.lower(), fields.get("resource")
        is_address = isinstance(message.to, str) and message.to.endswith(RESERVATION)
        if is_address or (isinstance(resource, str) and resource.startswith(RESERVATION)):
            raise NotOffered(f"the {NAME} of this domain has no reservations; an embedded one has (qos.url)")
        if kind == "create" and resource == "/turn":
            return self._turn(message, fields.get("value"), session)
        if kind == "read" and resource == "/quota":
            return Deferred.fromCoroutine(self._quota(message))
        if kind == "read" and isinstance(resource, str) and resource.startswith("/connectivity/"):
            return Deferred.fromCoroutine(self._last_hop(message, resource[len("/connectivity/") :]))
        if kind == "execute":
            return self._execute(message, fields, session)
        raise Rejected("QoS understands create of /turn, read of /quota and /connectivity/, and execute")

    def _execute(self, message: Message, fields: dict[str, Any], session: Session) -> Deferred[Message]:
        method, params = fields.get("method"), fields.get("params")
        if method == "getTurn":
            return self._turn(message, fields.get("value") or params, session)
        if method == "getAppropriateTurn":
            return Deferred.fromCoroutine(self._appropriate(message, _table(params), session))
        if method == "getCredentials":
            return Deferred.fromCoroutine(self._credentials(message, _table(params), session))
        known = "getTurn, getAppropriateTurn and getCredentials"
        raise NotOffered(f"QoS offers {known}, not {method!r}"[:200])

    # -- TURN ----------------------------------------------------------------------

    def _turn(self, message: Message, value: Any, session: Session) -> Deferred[Message]:
        return Deferred.fromCoroutine(self._with_credentials(message, _table(value), session))

    async def _with_credentials(self, message: Message, value: dict[str, Any], session: Session) -> Message:
        """
        Credentials in the form that RTCPeerConnection takes.
        """
        turn, client = await self._find(value, session)
        password = await self._password(client)
        server = {"urls": [f"turn:{turn}"], "username": client, "credential": password}
        answer = {"iceServers": [server], "iceTransportPolicy": "relay", "clientId": client}
        return message.reply({"code": 200, "value": answer})

    async def _appropriate(self, message: Message, value: dict[str, Any], session: Session) -> Message:
        turn, client = await self._find(value, session)
        return message.reply({"code": 200, "value": {"turn": turn, "clientId": client}})

    async def _credentials(self, message: Message, value: dict[str, Any], session: Session) -> Message:
        client = value.get("clientId")
        if not isinstance(client, str) or not client:
            raise Rejected("'params.clientId' must be the client that getAppropriateTurn gave")
        if client not in self._clients.get(session, {}):
            raise Rejected(
                "this session did not obtain that client; request a TURN server first", 403, "identity"
            )
        password = await self._password(client)
        return message.reply({"code": 200, "value": {"clientId": client, "password": password}})

    async def _find(self, value: dict[str, Any], session: Session) -> tuple[str, str]:
        name = value.get("clientName") or session.identity or session.runtime
        if not isinstance(name, str) or len(name) > MAX_NAME_CHARS:
            raise Rejected(f"'clientName' must be a name of at most {MAX_NAME_CHARS} characters")
        account = value.get("cspId")
        if account not in (None, self._options.csp):
            raise Rejected(f"'cspId' must be {self._options.csp!r}, or missing", 403, "identity")
        query = urlencode({"cspId": self._options.csp, "clientName": name}, quote_via=quote)
        answer = await self._ask(f"/getAppropriateTurn?{query}")
        match answer.json():
            case [str(turn), str(client)] if _TURN.fullmatch(turn) and 0 < len(client) <= MAX_NAME_CHARS:
                self._remember(client, session)
                return turn, client
        raise self._nonsense()

    async def _password(self, client: str) -> str:
        answer = await self._ask(f"/getCredentials?{urlencode({'clientId': client}, quote_via=quote)}")
        match answer.json():
            case {"clientId": found, "password": str(password)} if found == client and password:
                return password
        raise self._nonsense()

    def _remember(self, client: str, session: Session) -> None:
        clients = self._clients.setdefault(session, {})
        clients[client] = None
        if len(clients) > MAX_CLIENTS:
            del clients[next(iter(clients))]

    # -- the rest --------------------------------------------------------------------

    async def _quota(self, message: Message) -> Message:
        key = f"prov:{self._options.csp}"
        everybody = (await self._ask("/getAllCspInfo")).json()
        used = (await self._ask(f"/getCspConso?{urlencode({'cspkey': key}, quote_via=quote)}")).json()
        if not isinstance(everybody, list) or not isinstance(used, dict | None):
            raise self._nonsense()
        own = next((one for one in everybody if isinstance(one, dict) and one.get("csp") == key), None)
        if own is None or used is None:
            raise Rejected("the QoS broker does not know this domain's account", 404)
        quota = {kind: self._bytes(own.get(name)) for kind, name in _QUOTAS.items()}
        consumption = {kind: self._bytes(used.get(kind)) for kind in _QUOTAS}
        return message.reply({"code": 200, "value": {"quota": quota, "consumption": consumption}})

    def _bytes(self, text: Any) -> int:
        try:
            return int(text or 0)
        except (ValueError, TypeError):
            raise self._nonsense() from None

    async def _last_hop(self, message: Message, client: str) -> Message:
        if self._connectivity is None:
            raise NotOffered("no service for the last hop's connectivity is configured here")
        if not client or len(client) > MAX_NAME_CHARS:
            raise Rejected(f"a name of 1 to {MAX_NAME_CHARS} characters must follow /connectivity/")
        query = urlencode({"type": "read", "client": client}, quote_via=quote)
        answer = await self._connectivity.request("GET", f"/.well-known/?{query}")
        found = answer.check().json()
        if not isinstance(found, dict) or "value" not in found:
            raise self._nonsense()
        return message.reply({"code": 200, "value": found["value"]})

    async def _ask(self, path: str) -> Response:
        # Never repeated: each call resets the password, or hangs.
        answer = await self._broker.request("GET", path, safe=False)
        if answer.status == 404:
            raise _not_found(answer.content.decode("utf-8", "replace"))
        return answer.check()

    def _nonsense(self) -> Rejected:
        return Rejected(f"Invalid response from the {NAME}.", 502)


def _not_found(text: str) -> Rejected:
    """
    The broker answers every failure with 404; its text tells them apart.
    """
    said = " ".join(text.split())[:200] or "Not Found"
    if "exceeded" in said:
        return Rejected(said, 429, "back-end")
    return Rejected(said, 503 if "no turn" in said.lower() else 404, "back-end")


def _table(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Rejected("'value' or 'params' must be an object")
    return value
