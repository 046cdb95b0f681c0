"""
Whatever a call out ends with, whoever asked is told, and it is counted.
"""

import inspect
from typing import Any

from OpenSSL import SSL
from twisted.internet import defer, error
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.task import Clock
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web import _newclient, client, http
from twisted.web.error import SchemeNotSupported

from msgnode.backends.call_outcomes import in_words, is_worth_repeating, outcome_of
from msgnode.backends.http_body import TooLarge
from msgnode.backends.http_client import BackendClient, Unanswered
from msgnode.structures.log_limits import FailureLog
from tests.config.test_reload import logged
from tests.support.back_ends import Memory


class Unheard(Exception):
    """
    A class that nobody has heard of.
    """


def classes() -> list[type[Exception]]:
    """
    Every exception that the modules have by which the node calls out.
    """
    return [
        kind
        for module in (error, defer, _newclient, client, http)
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == module.__name__
    ]


class OutcomeTests(SynchronousTestCase):
    """
    The words by themselves.
    """

    def test_each_has_the_word_that_operators_know(self) -> None:
        """
        Each has the word that operators know; what is wrapped counts by what is inside.
        """
        inside = [Failure(SSL.Error([])), Failure(error.ConnectionLost())]
        for why, outcome, again in (
            (ConnectingCancelledError(None), "silent", False),
            (error.TimeoutError(), "silent", True),
            (error.TCPTimedOutError(), "silent", True),
            (defer.CancelledError(), "silent", False),
            (error.ConnectionRefusedError(), "unreachable", True),
            (error.DNSLookupError(), "unreachable", True),
            (_newclient.RequestNotSent(), "unreachable", True),
            (_newclient.ResponseNeverReceived([]), "unreachable", True),
            (_newclient.ResponseNeverReceived([Failure(defer.CancelledError())]), "silent", False),
            (_newclient.ResponseFailed(inside), "untrusted", False),
            (error.CertificateError(), "untrusted", False),
            (_newclient.ParseError("x", b""), "nonsense", False),
            (TooLarge(), "large", False),
            (SchemeNotSupported(), "failed", True),
            (Unheard(), "failed", True),
        ):
            self.assertEqual((outcome, again), (outcome_of(why), is_worth_repeating(why)), why)

    def test_in_words(self) -> None:
        """
        The log is told the innermost, by its class if it says nothing.
        """
        self.assertEqual("no", in_words(_newclient.ResponseFailed([Failure(Unheard("no"))])))
        self.assertEqual("Unheard", in_words(Unheard()))
        for why, text in (
            (ConnectingCancelledError(None), "no connection in time"),
            (error.TimeoutError(), "no connection in time"),
            (_newclient.ResponseNeverReceived([Failure(defer.CancelledError())]), "no answer in time"),
        ):
            self.assertEqual(text, in_words(why))


class EveryClassTests(SynchronousTestCase):
    """
    A back end whose connections end in all ways there are.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.memory = Memory(self.clock)

    def ask(self, rest: BackendClient, why: Any, **more: Any) -> str:
        self.memory.refuse = why
        return self.failureResultOf(rest.request("PUT", "/x", **more), Unanswered).value.outcome

    def test_every_exception_class_is_an_outcome(self) -> None:
        """
        No exception class falls through: each is an answer, a count, and a reason to give up in the end.
        """
        kinds: list[Any] = [*classes(), Unheard, ZeroDivisionError]
        self.assertGreater(len(kinds), 50)
        for kind in kinds:
            rest = self.memory.rest()
            outcome = outcome_of(kind.__new__(kind))

            told = {self.ask(rest, _made(kind)) for _ in range(5)}

            self.assertEqual({outcome}, told, kind)
            self.assertEqual({outcome: 5}, dict(rest.counts), kind)
            self.assertTrue(rest.down, kind)
        self.flushLoggedErrors()

    def test_idempotent_call_is_tried_again(self) -> None:
        """
        What does no harm twice is tried again, a connection that was not there in time too, and else not.
        """
        for why, dialled in (
            (error.TimeoutError(), 2),
            (error.ConnectionRefusedError(), 2),
            (Unheard(), 2),
            (SSL.Error([]), 1),
        ):
            self.memory.dialled = 0

            self.ask(self.memory.rest(), why, safe=True)

            self.assertEqual(dialled, self.memory.dialled, why)
        self.flushLoggedErrors()

    def test_deadline_while_connecting(self) -> None:
        """
        A host that drops SYN is silence at the deadline, counted, without a traceback, and left alone then.
        """
        said = logged(self)
        self.memory.refuse = "cancel"
        rest = self.memory.rest()

        asked = [rest.request("GET", "/x") for _ in range(6)]
        self.clock.advance(5)

        told = [self.failureResultOf(each, Unanswered).value for each in asked]
        self.assertEqual([("silent", 504)] * 6, [(why.outcome, why.code) for why in told])
        self.assertEqual({"silent": 6}, dict(rest.counts))
        self.assertTrue(rest.down)
        (line,) = said
        self.assertIn("is open: silent, no connection in time", line)

    def test_unheard_of(self) -> None:
        """
        What nobody foresaw is in the log with its traceback, the first and the tenth of a hundred.
        """
        rest = self.memory.rest()
        self.memory.refuse = Unheard("strange")

        for _ in range(50):
            self.clock.advance(6)
            self.failureResultOf(rest.request("PUT", "/x"), Unanswered)

        self.assertEqual(2, len(self.flushLoggedErrors(Unheard)))
        self.assertEqual({"failed": 50}, dict(rest.counts))


class FailuresTests(SynchronousTestCase):
    """
    The log of what nobody foresaw.
    """

    def test_powers_of_ten(self) -> None:
        """
        A thousand of one kind are four events, each with its number; another kind is one of its own.
        """
        said = logged(self)
        failures = FailureLog(Logger("msgnode.tests"))
        one, other = Failure(Unheard("a")), Failure(ZeroDivisionError())
        for _ in range(1000):
            failures.note("asking {what}", one, what="her")
        failures.note("asking {what}", other, what="him")
        self.flushLoggedErrors()

        times = [line for line in said if "asking her" in line]
        self.assertEqual(4, len(times))
        self.assertIn("; 1000 times so far", times[-1])
        self.assertEqual(1, len([line for line in said if "asking him" in line]))


def _made(kind: type[Exception]) -> Exception:
    """
    One of that class, whatever it wants to be made of.
    """
    made = kind.__new__(kind)
    made.__dict__.setdefault("osError", None)
    made.__dict__.setdefault("reasons", [])
    return made
