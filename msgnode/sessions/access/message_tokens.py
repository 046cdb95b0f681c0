"""
The identity tokens that messages carry: are they good, and whose are they?

A runtime puts the assertion of its user's provider into `body.identity.assertion`,
and may put an access token beside it, `body.identity.access_token`.  What they
prove is noted in the message, for the policies; its bytes stay as they are.
Seed 002: "validation of identity tokens in messages".
"""

import json
from collections import Counter, OrderedDict
from hashlib import sha256
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.config.schema import IdentityOptions
from msgnode.protocol.errors import Malformed, Rejected
from msgnode.protocol.message import Message, part
from msgnode.protocol.token_redaction import TOKEN_STATES
from msgnode.sessions.access.device_tokens import PREFIX
from msgnode.sessions.principal import TokenValidator, VerifiedToken
from msgnode.structures.log_limits import FailureLog

log = Logger()

NONE, VALID, INVALID, UNKNOWN = TOKEN_STATES
FIELDS = ("assertion", "access_token")
PATIENCE = 2.5  # seconds for a provider; the stubs of today give up after three
MAX_REFUSED = 10_000  # tokens that were no good, and need not be looked at again
MAX_SPELT = 128 * 1024  # bytes of one, each of its characters perhaps an escape
REMEMBERED = 60.0  # seconds; the provider may have other keys by then

_PLAIN = b'"identity"'


class Shown(NamedTuple):
    """
    The result of checking the tokens in one message: `state` is one of TOKEN_STATES.

    `user` and `idp` as policies know users and who vouches for them, and
    `expires`, in seconds since 1970, of a valid one only; `why` it is not.
    """

    state: str
    user: str = ""
    idp: str = ""
    expires: float | None = None
    why: str = ""
    code: int = 403


NOTHING = Shown(NONE)
LATE = Shown(UNKNOWN, why="could not be looked at in time", code=504)


class MessageIdentity:
    """
    Looks at the tokens in each message, with `identity.message_identity`.

    `counts` are the messages with tokens, by state; valid tokens are remembered
    by the validator, others here, both by hash and bounded.
    """

    def __init__(self, options: IdentityOptions, validator: TokenValidator, clock: IReactorTime) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys((VALID, INVALID, UNKNOWN), 0))
        self._options = options
        self._validator = validator
        self._clock = clock
        self._failures = FailureLog(log)
        self._refused: OrderedDict[bytes, tuple[float, Shown]] = OrderedDict()

    def forget(self) -> None:
        """
        Who is believed has changed.
        """
        self._refused.clear()

    def look(self, message: Message) -> Deferred[None] | None:
        """
        Note in the message what its tokens prove; None: it is noted.

        Raises Rejected, or the Deferred fails with it, where a message whose
        tokens are not good must not go on.
        """
        data = message.data
        if _PLAIN not in data and b"\\u00" not in data:  # a key may be spelt in escapes, too
            message.shown = NOTHING
            return None
        tokens = _tokens(message)
        if not tokens:
            message.shown = NOTHING
            return None
        found = [self._ask(token) for token in tokens]
        if any(isinstance(each, Deferred) for each in found):
            return _Waiting(found, self._clock).over.addCallback(self._note, message)
        self._note([each for each in found if isinstance(each, Shown)], message)
        return None

    def _note(self, found: list[Shown], message: Message) -> None:
        shown = _together(found)
        message.shown = shown
        self.counts[shown.state] += 1
        if shown.state != VALID and self._options.message_identity == "refuse":
            raise Rejected(f"the token in 'body.identity' {shown.why}"[:300], shown.code, "identity")

    def _ask(self, token: Any) -> Shown | Deferred[Shown]:
        if not isinstance(token, str):
            return Shown(INVALID, why="is no text, or far too long")
        if token.startswith(PREFIX):
            return Shown(INVALID, why="is a device's, and of no use to others")
        key = sha256(token.encode("utf-8", "surrogatepass")).digest()
        until, known = self._refused.get(key, (0.0, NOTHING))
        if until > self._clock.seconds():
            return known
        try:
            claim = self._validator.validate(token)
        except Exception:
            return self._failed(Failure(), key)
        if isinstance(claim, Deferred):
            return claim.addCallbacks(_valid, self._failed, (), {}, (key,))
        return _valid(claim)

    def _failed(self, why: Failure, key: bytes) -> Shown:
        if isinstance(why.value, Rejected):
            return self._refuse(why.value, key)
        self._failures.note("looking at the token in a message", why)
        return Shown(UNKNOWN, why="could not be looked at; the node's log says why", code=503)

    def _refuse(self, why: Rejected, key: bytes) -> Shown:
        text = str(why).removeprefix("the token ")
        if why.code >= 500:
            return Shown(UNKNOWN, why=text, code=why.code)
        shown = Shown(INVALID, why=text)
        self._refused[key] = self._clock.seconds() + REMEMBERED, shown
        self._refused.move_to_end(key)
        if len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)
        return shown


class _Waiting:
    """
    Verdicts, some of which a provider owes; `over` fires with all, LATE standing for those it has not given.
    """

    def __init__(self, found: list[Any], clock: IReactorTime) -> None:
        self.over: Deferred[list[Shown]] = Deferred()
        self._found = found
        self._late = clock.callLater(PATIENCE, self._end)
        for place, each in enumerate(found):
            if isinstance(each, Deferred):
                each.addCallback(self._came, place)

    def _came(self, shown: Shown, place: int) -> None:
        self._found[place] = shown
        if not any(isinstance(each, Deferred) for each in self._found) and not self.over.called:
            self._late.cancel()
            self._end()

    def _end(self) -> None:
        self.over.callback([LATE if isinstance(each, Deferred) else each for each in self._found])


def _tokens(message: Message) -> list[Any]:
    """
    What the message shows, in the order of FIELDS.  However large it is, no more than that is read.
    """
    body = bytes(message.body)
    try:
        identity = part(body, "identity") if body else None
        if identity is None or not identity.startswith(b"{"):
            return []
        found = [part(identity, name) for name in FIELDS]
    except (ValueError, RecursionError):
        raise Malformed("'body' holds what cannot be read", message.id, message.from_) from None
    return [_text(each) for each in found if each not in (None, b"null", b'""')]


def _text(spelt: bytes) -> Any:
    """
    What it says; None if it is no text, or longer than any token.
    """
    return json.loads(spelt) if spelt.startswith(b'"') and len(spelt) <= MAX_SPELT else None


def _valid(claim: VerifiedToken) -> Shown:
    proof = claim.proof
    return Shown(VALID, proof.username or proof.user, proof.idp, proof.until)


def _together(found: list[Shown]) -> Shown:
    """
    What several tokens prove: no more than the least of them, and nothing if they are of two users.
    """
    for state in (INVALID, UNKNOWN):
        for shown in found:
            if shown.state == state:
                return shown
    if len({(shown.user, shown.idp) for shown in found}) > 1:
        return Shown(INVALID, why="is another user's than the access token")
    ends = [shown.expires for shown in found if shown.expires is not None]
    return Shown(VALID, found[0].user, found[0].idp, min(ends, default=None))
