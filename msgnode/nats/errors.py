"""
The errors of the client. Each is a `NatsError`, and its text says what was expected and what came.
"""


class NatsError(Exception):
    """
    The base class of all errors of this client.
    """


class ProtocolError(NatsError):
    """
    The server sent bytes that are not the NATS protocol. The connection cannot go on.
    """


class ServerError(NatsError):
    """
    An error that the server sent with `-ERR`, for instance `Permissions Violation for Publish to "a"`.
    """


class AuthorizationError(ServerError):
    """
    The server did not accept the credentials, or they have expired.
    """


class TLSError(NatsError):
    """
    TLS is wanted, and the server does not offer it.
    """


class ConnectionLost(NatsError):
    """
    The connection ended before the answer came.
    """


class NoServer(NatsError):
    """
    No server of the list accepted a connection. `reason` is the error of the last attempt.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(f"no server accepted a connection: {reason}")
        self.reason = reason


class Closed(NatsError):
    """
    The client is closed, or is being drained.
    """


class BufferFull(NatsError):
    """
    A bounded buffer has no room: try again after `has_room` was called.
    """


class PayloadTooLarge(NatsError):
    """
    A publication is larger than the `max_payload` of the server.
    """


class SubjectError(NatsError, ValueError):
    """
    A subject, a queue group or a header cannot be written in the NATS protocol.
    """


class HeaderError(NatsError, ValueError):
    """
    The headers of a message that came are malformed; its payload can be used.
    """


class CredentialsError(NatsError, ValueError):
    """
    A seed, a key or a file of credentials cannot be read.
    """


class NoResponders(NatsError):
    """
    No subscriber has the subject of a request: the server answered with status 503.
    """


class RequestTimeout(NatsError):
    """
    The answer to a request, a flush or a drain did not come in time.
    """
