"""
The addresses that a client subscribes again when the node has lost its session.
"""

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from msgnode.client import Refused
from msgnode.client.handlers import Handlers
from msgnode.client.subscriptions import Subscriptions

TOPIC = "comm://b.example/news/changes"


class AnsweringNode:
    """
    A client whose requests the node answers with a code.
    """

    domain = "a.example"

    def __init__(self, code: int) -> None:
        self.code = code

    def request(self, to: str, body: Any = None, **header: Any) -> Deferred[Any]:
        return succeed(None) if self.code < 300 else fail(Refused(self.code, "so it is"))


class SubscriptionsTests(SynchronousTestCase):
    """
    A subscription that the node made, refused, or goes on asking another domain for.
    """

    def again(self, code: int) -> Any:
        """
        What is subscribed again after a subscription with this answer.
        """
        subscriptions = Subscriptions(AnsweringNode(code), Handlers(Deferred.fromCoroutine))
        asked = subscriptions.subscribe([TOPIC], None)
        if code < 300:
            self.successResultOf(asked)
        else:
            self.assertEqual(code, self.failureResultOf(asked, Refused).value.code)
        return subscriptions.renewal()

    def test_a_subscription_that_another_domain_has_not_answered_is_made_again(self) -> None:
        """
        It stands, although its caller is told of the code 504.
        """
        made = ("domain://msg-node.a.example/sm", [TOPIC])

        self.assertEqual((made, made), (self.again(200), self.again(504)))

    def test_a_subscription_that_was_refused_is_not_made_again(self) -> None:
        """
        Its handler may be used by a later one.
        """
        self.assertEqual([None, None], [self.again(403), self.again(502)])
