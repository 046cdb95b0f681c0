"""
Actions on reservations of relay bandwidth.
"""

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from msgnode.admin.actions.audited import Audited, Plan
from msgnode.admin.api.endpoint import Call
from msgnode.node import Node
from msgnode.protocol.errors import Rejected


class ReservationActions:
    """
    The actions on the reservations of the embedded QoS broker.
    """

    def __init__(self, node: Node, audited: Audited) -> None:
        self._node = node
        self._audited = audited

    def take_back(self, call: Call) -> Any:
        """
        Ends a reservation, and what the relay carries of it; its session gets a notice.
        """
        id, reservations = call.path["id"], self._node.reservations
        found = reservations.find(id) if reservations is not None else None
        if reservations is None or found is None:
            raise Rejected(f"there is no reservation {id[:200]!r} at this node", 404, "not-found")

        @inlineCallbacks
        def taken() -> Generator[Deferred[Any], Any, dict[str, Any]]:
            current = reservations.find(id)
            if current is None:
                raise Rejected(f"reservation {id!r} has ended meanwhile", 409, "conflict")
            failure = yield Deferred.fromCoroutine(reservations.take_back(current))
            details = {"reservation": id, "up": current.up, "down": current.down}
            return {**details, "relay": failure} if failure else details

        before = {"reservation": id, "up": found.up, "down": found.down, "expires": found.until}
        plan = Plan("take-back reservation", [found.runtime], taken, before=before)
        return self._audited.run(call, plan, call.body.reason)
