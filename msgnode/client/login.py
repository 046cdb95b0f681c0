"""
Authentication of the client: an identity token, or a function that returns one.

docs/protocol.md, "Authentication".  The node notifies the client before a token expires.
A function is then called again; a plain token cannot be renewed.
"""

from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from msgnode.client.errors import NoToken

Source = str | Callable[[], Any]


class Login:
    """
    The source of a client's identity tokens.

    `source` is a token, or a function without arguments that returns one, as str, Deferred or coroutine.

    `run` turns a coroutine into a Deferred.
    """

    def __init__(self, source: Source, run: Callable[[Coroutine[Any, Any, Any]], Deferred[Any]]) -> None:
        self._source = source
        self._run = run

    @property
    def renews(self) -> bool:
        """
        Can it return another token than the last one?
        """
        return callable(self._source)

    def token(self) -> Deferred[str]:
        """
        Fires with a token that is valid now.  Fails with NoToken, which says why there is none.
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
        # The text never has the value: it may be the token in another form.
        raise NoToken("it is empty" if token == "" else f"expected a str, not {type(token).__name__}")
    return token


def _failed(why: Failure) -> NoReturn:
    assert why.value is not None
    raise _no_token(why.value) from None


def _no_token(why: BaseException) -> NoToken:
    return NoToken(f"no identity token: {str(why) or type(why).__name__}")
