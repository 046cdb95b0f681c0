"""
The outcome of a failed call to a back end: one stable word for every exception.

Twisted has dozens of exception classes for connections that fail, break or time out. Callers need not know
them. An exception that is not listed here is "failed".
"""

from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet import defer, error
from twisted.python.reflect import safe_str
from twisted.web._newclient import BadHeaders, ConnectionAborted, ParseError, RequestNotSent
from twisted.web.client import RequestTransmissionFailed, ResponseFailed
from twisted.web.http import _DataLoss, _MalformedChunkedDataError

from msgnode.backends.http_body import TooLarge

# The first entry that matches counts, so a subclass precedes its base class.
OUTCOMES: tuple[tuple[str, tuple[type[BaseException], ...]], ...] = (
    ("large", (TooLarge,)),
    (
        "silent",
        (
            defer.CancelledError,  # the deadline has passed
            error.ConnectingCancelledError,  # the deadline has passed while connecting
            error.TimeoutError,
            error.TCPTimedOutError,
            TimeoutError,
            defer.TimeoutError,
        ),
    ),
    (
        "untrusted",
        (SSL.Error, VerificationError, error.SSLError, error.VerifyError, error.CertificateError),
    ),
    ("nonsense", (ParseError, BadHeaders, _MalformedChunkedDataError)),  # the peer does not speak HTTP
    (
        "unreachable",
        (
            error.ConnectError,
            error.ConnectionClosed,
            error.NoProtocol,
            OSError,  # DNSLookupError among them
            ConnectionAborted,
            RequestNotSent,
            _DataLoss,
        ),
    ),
)
# Descriptions for exceptions whose own text explains nothing.
_SAID = (
    ("no connection in time", (error.ConnectingCancelledError, error.TimeoutError)),
    ("no answer in time", (defer.CancelledError,)),
)
_WRAPPED = (ResponseFailed, RequestTransmissionFailed)


def outcome_of(why: BaseException) -> str:
    """
    The word for an exception: "large", "silent", "untrusted", "nonsense", "unreachable"; else "failed".
    """
    found = set()
    for reason in reasons(why):
        found.add(next((word for word, kinds in OUTCOMES if isinstance(reason, kinds)), ""))
    for word, _ in OUTCOMES:
        if word in found:
            return word
    return "unreachable" if isinstance(why, _WRAPPED) else "failed"


def is_worth_repeating(why: BaseException) -> bool:
    """
    Could an immediate retry succeed? A broken connection may be repaired; a server that is silent stays so.
    """
    # After a connection timeout no request was sent, and the next connection may be quick.
    return isinstance(why, error.ConnectError) or outcome_of(why) in ("unreachable", "failed")


def reasons(why: BaseException) -> list[BaseException]:
    """
    The exception, and the exceptions that caused it.
    """
    inside = [failure.value for failure in getattr(why, "reasons", None) or ()]
    return [why] + [reason for each in inside for reason in reasons(each)]


def in_words(why: BaseException) -> str:
    """
    A description of the innermost cause, for the log.
    """
    innermost = reasons(why)[-1]
    for text, kinds in _SAID:
        if isinstance(innermost, kinds):
            return text
    return safe_str(innermost) or type(innermost).__name__
