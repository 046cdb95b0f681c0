"""
What came of a call out that failed: one word for every exception there is.

Twisted has dozens of classes for a connection that does not come about, that
breaks or is given up.  Whoever calls out asks here, and knows none of them;
one that is not known here either is `failed`.
"""

from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet import defer, error
from twisted.python.reflect import safe_str
from twisted.web._newclient import BadHeaders, ConnectionAborted, ParseError, RequestNotSent
from twisted.web.client import RequestTransmissionFailed, ResponseFailed
from twisted.web.http import _DataLoss, _MalformedChunkedDataError

from msgnode.backends.http_body import TooLarge

# By the first that fits, so a class stands before the one it is derived from.
OUTCOMES: tuple[tuple[str, tuple[type[BaseException], ...]], ...] = (
    ("large", (TooLarge,)),
    (
        "silent",
        (
            defer.CancelledError,  # the deadline passed
            error.ConnectingCancelledError,  # while it was connecting
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
    ("nonsense", (ParseError, BadHeaders, _MalformedChunkedDataError)),  # it does not speak HTTP
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
# Those that say nothing to whoever reads them.
_SAID = (
    ("no connection in time", (error.ConnectingCancelledError, error.TimeoutError)),
    ("no answer in time", (defer.CancelledError,)),
)
_WRAPPED = (ResponseFailed, RequestTransmissionFailed)


def outcome_of(why: BaseException) -> str:
    """
    "large", "silent", "untrusted", "nonsense" or "unreachable"; "failed" if nobody foresaw it.
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
    May the same call, made at once, end otherwise?  A line may break once; silence goes on.
    """
    # A connection that was not there in time was asked nothing, and the next may be quick.
    return isinstance(why, error.ConnectError) or outcome_of(why) in ("unreachable", "failed")


def reasons(why: BaseException) -> list[BaseException]:
    """
    The exception and those it was made of.
    """
    inside = [failure.value for failure in getattr(why, "reasons", None) or ()]
    return [why] + [reason for each in inside for reason in reasons(each)]


def in_words(why: BaseException) -> str:
    """
    The innermost of them, for the log.
    """
    innermost = reasons(why)[-1]
    for text, kinds in _SAID:
        if isinstance(innermost, kinds):
            return text
    return safe_str(innermost) or type(innermost).__name__
