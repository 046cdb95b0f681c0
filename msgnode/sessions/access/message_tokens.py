"""
Validation of the identity tokens in messages.

A runtime puts the assertion of its user's provider into `body.identity.assertion`, and may add an access
token in `body.identity.access_token`. The result is noted in the message, for the policies; its bytes do not
change.
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
TOKEN_TIMEOUT_SECONDS = 2.5  # seconds to wait for a provider; the deployed protostubs give up after three
MAX_INVALID = 10_000  # invalid tokens that are cached
MAX_TOKEN_BYTES = 128 * 1024  # bytes of a token, if each character is an escape
INVALID_CACHE_SECONDS = 60.0  # seconds that an invalid token is cached; the provider's keys may change

_PLAIN = b'"identity"'


class Shown(NamedTuple):
    """
    The result of validating the tokens in a message: `state` is one of TOKEN_STATES.

    Only a valid one has `user` and `idp`, as policies see them, and `expires` in seconds since 1970. `why`
    explains an invalid one.
    """

    state: str
    user: str = ""
    idp: str = ""
    expires: float | None = None
    why: str = ""
    code: int = 403


NOTHING = Shown(NONE)
LATE = Shown(UNKNOWN, why="could not be validated in time", code=504)


class MessageIdentity:
    """
    The validation of the identity tokens in each message, as `identity.message_identity` configures it.

    `counts` counts the messages with tokens by state. Valid tokens are cached by the validator, invalid ones
    here; both caches are bounded, and keyed by hash.
    """

    def __init__(self, options: IdentityOptions, validator: TokenValidator, clock: IReactorTime) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys((VALID, INVALID, UNKNOWN), 0))
        self._options = options
        self._validator = validator
        self._clock = clock
        self._failures = FailureLog(log)
        self._refused: OrderedDict[bytes, tuple[float, Shown]] = OrderedDict()

    @property
    def remembered(self) -> int:
        """
        The number of results that are cached, here and by the validator.
        """
        return len(self._refused) + self._validator.remembered

    def forget(self) -> None:
        """
        Drops the cached results, because the trusted providers have changed.
        """
        self._refused.clear()

    def look(self, message: Message) -> Deferred[None] | None:
        """
        Validates the tokens of a message and notes the result in it. None if that is done, else a Deferred.

        Raises Rejected, or fails with it, if the configuration refuses messages with invalid tokens.
        """
        data = message.data
        if _PLAIN not in data and b"\\u00" not in data:  # a key may be written with escapes
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
        shown = _combined(found)
        message.shown = shown
        self.counts[shown.state] += 1
        if shown.state != VALID and self._options.message_identity == "refuse":
            raise Rejected(f"the token in 'body.identity' {shown.why}"[:300], shown.code, "identity")

    def _ask(self, token: Any) -> Shown | Deferred[Shown]:
        if not isinstance(token, str):
            return Shown(INVALID, why="is not a text, or too long")
        if token.startswith(PREFIX):
            return Shown(INVALID, why="is a device token, which only its device may use")
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
        self._failures.note("the validation of a token in a message failed unexpectedly", why)
        return Shown(UNKNOWN, why="could not be validated; the node's log has the details", code=503)

    def _refuse(self, why: Rejected, key: bytes) -> Shown:
        text = str(why).removeprefix("the token ")
        if why.code >= 500:
            return Shown(UNKNOWN, why=text, code=why.code)
        shown = Shown(INVALID, why=text)
        self._refused[key] = self._clock.seconds() + INVALID_CACHE_SECONDS, shown
        self._refused.move_to_end(key)
        if len(self._refused) > MAX_INVALID:
            self._refused.popitem(last=False)
        return shown


class _Waiting:
    """
    A collector of the results of several tokens. `over` fires with all of them; LATE stands for a result that
    is not there in time.
    """

    def __init__(self, found: list[Any], clock: IReactorTime) -> None:
        self.over: Deferred[list[Shown]] = Deferred()
        self._found = found
        self._late = clock.callLater(TOKEN_TIMEOUT_SECONDS, self._end)
        for place, each in enumerate(found):
            if isinstance(each, Deferred):
                each.addCallback(self._arrived, place)

    def _arrived(self, shown: Shown, place: int) -> None:
        self._found[place] = shown
        if not any(isinstance(each, Deferred) for each in self._found) and not self.over.called:
            self._late.cancel()
            self._end()

    def _end(self) -> None:
        self.over.callback([LATE if isinstance(each, Deferred) else each for each in self._found])


def _tokens(message: Message) -> list[Any]:
    """
    The tokens in a message, in the order of FIELDS. Only these parts of the body are decoded.
    """
    body = bytes(message.body)
    try:
        identity = part(body, "identity") if body else None
        if identity is None or not identity.startswith(b"{"):
            return []
        found = [part(identity, name) for name in FIELDS]
    except (ValueError, RecursionError):
        raise Malformed("'body' has a part that cannot be decoded", message.id, message.from_) from None
    return [_text(each) for each in found if each not in (None, b"null", b'""')]


def _text(spelt: bytes) -> Any:
    """
    The decoded text; None if it is not a text, or longer than any token.
    """
    return json.loads(spelt) if spelt.startswith(b'"') and len(spelt) <= MAX_TOKEN_BYTES else None


def _valid(claim: VerifiedToken) -> Shown:
    proof = claim.proof
    return Shown(VALID, proof.username or proof.user, proof.idp, proof.until)


def _combined(found: list[Shown]) -> Shown:
    """
    The combined result of several tokens: invalid if one is, or if they belong to two users.
    """
    for state in (INVALID, UNKNOWN):
        for shown in found:
            if shown.state == state:
                return shown
    if len({(shown.user, shown.idp) for shown in found}) > 1:
        return Shown(INVALID, why="belongs to another user than the access token")
    ends = [shown.expires for shown in found if shown.expires is not None]
    return Shown(VALID, found[0].user, found[0].idp, min(ends, default=None))
