"""
The Python client at a node that wants to know who comes: it shows a token, and a newer one in time.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.client import CannotConnect, Closed, NoToken
from msgnode.client.login import Login
from tests.support.network import Network
from tests.support.openid import OTHER_RSA, provider
from tests.support.programs import Program

RUNTIME = "runtime://example.org/a"
ANN = "user://example.org/ann@example.org"
NEWS = "comm://example.org/o/changes"


class LoginSuite:
    """
    A node that opens no session without a token.
    """

    wire = "line"

    def setUp(self: Any) -> None:
        self.net = Network(identity={"auth": "required", "providers": [provider()]})
        self.openid = self.net.node.world.openid
        self.given: list[str] = []

    def program(self: Any, identity: Any = None, **options: Any) -> Program:
        return Program(self.net, "a", self.wire, identity=identity, **options)

    def newest(self: Any) -> str:
        """
        What the provider gives now, as an application asks for it.
        """
        self.given.append(self.openid.token(jti=str(len(self.given))))
        return self.given[-1]

    def user(self: Any) -> str:
        session = self.net.node.sessions.get(RUNTIME)
        return session.identity if session is not None else "no session"

    def stopped(self: Any, program: Program, seconds: float = 0) -> Any:
        done = program.connect()
        self.net.advance(seconds or 1)
        return program.result(done)

    # -- opening -----------------------------------------------------------------

    def test_a_client_with_a_token_opens_its_session(self: Any) -> None:
        """
        It is known by the token, and works as ever.
        """
        program = self.program(self.openid.token()).opened()

        program.result(program.subscribe(NEWS))

        self.assertEqual(ANN, self.user())

    def test_a_client_gets_its_token_from_a_function(self: Any) -> None:
        """
        A function gives it, at once or later, or a coroutine function does.
        """
        later: Deferred[str] = Deferred()

        async def coroutine() -> str:
            return self.newest()

        self.program(self.newest).opened().close()
        self.program(coroutine).opened().close()
        program = self.program(lambda: later)
        done = program.connect()
        self.net.pump()
        self.assertFalse(done.called)
        later.callback(self.newest())
        program.result(done)

        self.assertEqual((ANN, 3), (self.user(), len(self.given)))

    def test_a_client_without_a_token_is_told_4401(self: Any) -> None:
        """
        It stops, with the code; so does one whose token is another's work or has ended.
        """
        ended = self.openid.token(exp=int(self.net.node.wall()) - 600)
        for identity in (None, self.openid.token(OTHER_RSA), ended, lambda: "no token at all"):
            with self.assertRaisesRegex(Closed, "4401 token"):
                self.stopped(self.program(identity), 8)

    def test_a_function_without_a_token_fails_the_first_attempt(self: Any) -> None:
        """
        Whatever it raises or gives, connect() says why; nothing but a text is sent.
        """

        def broken() -> str:
            raise OSError("the keychain is locked")

        later: Deferred[str] = Deferred()
        later.errback(RuntimeError("nobody logged in"))
        for identity, text in (
            (broken, "the keychain is locked"),
            (lambda: later, "nobody logged in"),
            (lambda: None, "expected a str, not NoneType"),
            (lambda: b"bytes", "expected a str, not bytes"),
            (lambda: "", "it is empty"),
        ):
            with self.assertRaisesRegex(CannotConnect, f"no identity token: {text}"):
                self.stopped(self.program(identity))

    def test_a_function_that_takes_too_long_is_named(self: Any) -> None:
        """
        It is not the node that said nothing.
        """
        with self.assertRaisesRegex(CannotConnect, "no identity token: none came within 10 s"):
            self.stopped(self.program(lambda: Deferred()), 15)

    # -- going on ------------------------------------------------------------------

    def test_a_client_renews_its_token_before_it_ends(self: Any) -> None:
        """
        The node says that a token is about to end; the function is asked, and the connection stays.
        """
        program = self.program(self.newest).opened()
        [link] = program.endpoint.links

        self.net.advance(3 * 600)

        self.assertEqual(ANN, self.user())
        self.assertEqual([link], program.endpoint.links)
        self.assertGreaterEqual(len(self.given), 4)

    def test_a_client_whose_token_ended_comes_back_with_another(self: Any) -> None:
        """
        If nobody had one when it was time, the session is closed, and entered again when somebody has.
        """
        locked = False

        def keychain() -> str:
            if locked:
                raise OSError("the keychain is locked")
            return self.newest()

        program = self.program(keychain).opened()
        program.result(program.subscribe(NEWS))
        locked = True
        self.net.advance(700)
        self.assertFalse(program.is_open)
        locked = False

        self.net.advance(60)

        self.assertTrue(program.is_open)
        self.assertEqual(ANN, self.user())
        self.assertEqual([RUNTIME], [s.runtime for s in self.net.node.routes.resolve(NEWS)])

    def test_a_client_goes_on_while_its_function_gives_a_token_that_ended(self: Any) -> None:
        """
        Who was let in once tries again until there is a newer one, and has its addresses then.
        """
        ended = self.newest()
        late = True
        program = self.program(lambda: ended if late else self.newest()).opened()
        program.result(program.subscribe(NEWS))
        self.net.advance(700)
        attempts = program.endpoint.attempts
        self.assertFalse(program.is_open)
        late = False

        self.net.advance(60)

        self.assertLess(2, attempts)
        self.assertIsNone(program.stopped)
        self.assertTrue(program.is_open)
        self.assertEqual([RUNTIME], [s.runtime for s in self.net.node.routes.resolve(NEWS)])

    def test_a_client_with_a_token_alone_stops_when_it_ends(self: Any) -> None:
        """
        Nothing gives it another, so coming back would be useless.
        """
        program = self.program(self.newest())
        program.opened()

        self.net.advance(700)

        self.assertIsInstance(program.stopped, Closed)

    def test_a_client_shows_its_token_again_when_it_comes_back(self: Any) -> None:
        """
        After a loss it re-opens its session with a token that is good then.
        """
        program = self.program(self.newest).opened()
        token = program.token

        program.drop()
        self.net.advance(2)

        self.assertEqual((True, token, 2), (program.is_open, program.token, len(self.given)))

    def test_a_token_that_comes_after_the_connection_was_lost_is_for_the_next(self: Any) -> None:
        """
        A function that takes its time does not open a session on a connection that is gone.
        """
        waiting: list[Deferred[str]] = []

        def slow() -> Deferred[str]:
            waiting.append(Deferred())
            return waiting[-1]

        program = self.program(slow)
        done = program.connect(retry=True)
        self.net.pump()
        program.drop()
        waiting.pop(0).callback(self.newest())
        self.net.advance(2)
        self.assertEqual("no session", self.user())

        waiting.pop().callback(self.newest())

        program.result(done)
        self.assertEqual(ANN, self.user())


class LineLoginTests(LoginSuite, SynchronousTestCase):
    """
    By lines.
    """


class WebSocketLoginTests(LoginSuite, SynchronousTestCase):
    """
    By WebSocket.
    """

    wire = "web"


class SourceTests(SynchronousTestCase):
    """
    Where a token comes from.
    """

    def test_a_token_in_hand_is_given_as_it_is(self) -> None:
        """
        And nobody is asked for another.
        """
        login = Login("a token", Deferred.fromCoroutine)

        self.assertEqual("a token", self.successResultOf(login.token()))
        self.assertFalse(login.renews)

    def test_what_a_function_raises_is_told_in_words(self) -> None:
        """
        An exception without words is told by its kind.
        """

        def broken() -> str:
            raise KeyError

        why = self.failureResultOf(Login(broken, Deferred.fromCoroutine).token(), NoToken)

        self.assertEqual("no identity token: KeyError", why.getErrorMessage())
