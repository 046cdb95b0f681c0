"""
One request to a resource: its conditions, and its answer from the response.
"""

from twisted.internet.interfaces import IReactorTime
from twisted.web.server import Request

from msgnode.connectors.http.rest.conditions import Conditions, Preferences, entity_tag
from msgnode.connectors.http.rest.exchange import RestRequest
from msgnode.node import Node
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message
from msgnode.transport.http_answers import answer_json

GONE = (404, 410)  # codes of a read by which there is no such resource
NOT_READABLE = (405, 501)  # codes of a recipient that reads nothing
WITHOUT_BODY = (204, 205, 304)  # statuses


class ResourceRequest(RestRequest):
    """
    A message that came by a request to a resource: the code of its response is the status of the answer.
    """

    def __init__(
        self,
        node: Node,
        clock: IReactorTime,
        request: Request,
        conditions: Conditions,
        preferences: Preferences,
    ) -> None:
        super().__init__(node, clock, request)
        self.preferences = preferences
        self._conditions = conditions
        self._method = request.method.decode("latin-1")
        if preferences.applied:
            request.setHeader(b"Preference-Applied", preferences.applied.encode())

    @property
    def reads_first(self) -> bool:
        """
        Must the resource be read before the message is sent, because of its conditions?
        """
        return bool(self._conditions) and not self._is_read

    @property
    def _is_read(self) -> bool:
        return self._method in ("GET", "HEAD")

    def respond(self, message: Message) -> None:
        status, body = status_of(message), bytes(message.body)
        if not 200 <= status <= 599:
            text = f"the recipient answered with the code {status}, which is no status of HTTP"
            self.refuse(502, text)
            return
        tag = entity_tag(body) if status < 300 else ""
        if tag:
            self._request.setHeader(b"ETag", tag.encode())
        if self._is_read and status < 300:
            failed = self._conditions.failure(True, tag, is_read=True)
            if failed == 412:
                self._refuse_condition()
                return
            status = failed or status
        self.write(status, b"" if status in WITHOUT_BODY else body or b"{}")

    def may_go_on(self, response: Message) -> bool:
        """
        Does the resource, as this response to a read has it, meet the conditions? If not, that is the answer.
        """
        status = status_of(response)
        if status not in (*GONE, *NOT_READABLE) and not 200 <= status < 300:
            self.respond(response)
            return False
        if status in NOT_READABLE:
            self.refuse(412, "the recipient cannot be asked for its version, so no condition can be met")
            return False
        tag = entity_tag(bytes(response.body))
        if self._conditions.failure(status < 300, tag, is_read=False):
            if tag:
                self._request.setHeader(b"ETag", tag.encode())
            self._refuse_condition()
            return False
        self.on_response = self.respond
        return True

    def _refuse_condition(self) -> None:
        self.refuse(412, "the version is another one than If-Match or If-None-Match says")

    def nothing_came(self, to: object, wait: float) -> None:
        if not self.preferences.is_async or self.on_response != self.respond:
            super().nothing_came(to, wait)
            return
        self._request.setResponseCode(202)
        self.answer_now(answer_json(self._request, 202, {"accepted": 1}))


def status_of(message: Message) -> int:
    """
    The code of a response; 200 if it has none, 0 if that is no number.
    """
    try:
        code = message.field("code")
    except Malformed:
        return 0
    if code is None:
        return 200
    return code if type(code) is int else 0
