"""
Who the client says it is: an identity token, or a function that gets one.

docs/protocol.md, "Authentication".  The node tells when a token is about to end; a
function is then called again, a token alone can only be used up.
"""

from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from msgnode.client.errors import NoToken

Source = str | Callable[[], Any]


class Login:
    """
    The identity token of a client, or the way to get one.

    `source` is a token, or is called without arguments and gives one: a str, a Deferred or a coroutine of it.

    `run` makes a Deferred of a coroutine.
    """

    def __init__(self, source: Source, run: Callable[[Coroutine[Any, Any, Any]], Deferred[Any]]) -> None:
        self._source = source
        self._run = run

    @property
    def renews(self) -> bool:
        """
        May it give another token than the last one?
        """
        return callable(self._source)

    def token(self) -> Deferred[str]:
        """
        A token that is good now.  Fails with NoToken, which says why there is none.
        """
        if isinstance(self._source, str):
            return succeed(self._source)
        try:
            found = self._source()
        except Exception as why:
            return fail(_no_token(why))
        if isinstance(found, Coroutine):
            found = self._run(found)
        made: Deferred[Any] = found if isinstance(found, Deferred) else succeed(found)
        return made.addCallback(_checked).addErrback(_failed)


def _checked(token: Any) -> str:
    if not isinstance(token, str) or not token:
        # Never what it is: that may be the token in another form.
        raise NoToken("it is empty" if token == "" else f"expected a str, not {type(token).__name__}")
    return token


def _failed(why: Failure) -> NoReturn:
    assert why.value is not None
    raise _no_token(why.value) from None


def _no_token(why: BaseException) -> NoToken:
    return NoToken(f"no identity token: {str(why) or type(why).__name__}")
