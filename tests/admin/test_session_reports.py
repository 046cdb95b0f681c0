"""
`GET /api/v1/sessions/{runtime}`: what only the report on one session has.
"""

from tests.support.admin_case import A, AdminCase, url
from tests.support.runtimes import TCPRuntime

ACKS = "runtime://example.org/acks"


class OutboxTests(AdminCase):
    """
    A client that acknowledges, and one that does not.
    """

    def test_a_client_is_behind_by_what_it_has_not_acknowledged_and_what_waits(self) -> None:
        """
        On its connection, and without one; a client that does not acknowledge has no outbox.
        """
        client = TCPRuntime(self.net, ACKS)
        client.session("open", **{"from": ACKS, "body": {"resume": True}})
        update = {"id": 1, "type": "update", "from": f"{A}/x", "to": f"{ACKS}/y"}
        self.device.send(update, update)
        self.assertEqual(2, self.get(f"sessions/{url(ACKS)}")["outbox"]["behind"])

        client.drop()
        self.device.send(update)

        found = self.get(f"sessions/{url(ACKS)}")
        self.assertEqual((2, 3), (found["outbox"]["unacked"], found["outbox"]["behind"]))
        self.assertIsNone(self.get(f"sessions/{url(A)}")["outbox"])
