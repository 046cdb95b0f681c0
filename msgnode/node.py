"""
The node without its connectors: the six nouns, put together.

The tap gives it a clock and a journal; connectors give it connections.  Tests
give it a Clock and talk to it in memory.
"""

from twisted.internet.interfaces import IReactorTime

from msgnode.address import Domain
from msgnode.allocation import Allocation
from msgnode.binding import Binder
from msgnode.config import Config
from msgnode.handshake import Handshake
from msgnode.reception import Reception
from msgnode.router import Responder, Router
from msgnode.routes import RoutingTable
from msgnode.session import Counts
from msgnode.sessions import Journal, Sessions
from msgnode.subscription import Subscription


class Node:
    """
    What a connector needs: `receive(data, connection)`, `sessions` and `handshake`.
    """

    def __init__(self, config: Config, clock: IReactorTime, journal: Journal) -> None:
        self.config = config
        self.counts = Counts()
        self.routes = RoutingTable()
        self.sessions = Sessions(config, self.routes, journal, self.counts, clock)
        domain = Domain(config.domain)
        self.handshake = Handshake(self.sessions, domain)
        binder = Binder(domain, self.routes, config.limits.bindings_per_session)
        allocation = Allocation(config, domain, self.routes, binder)
        subscription = Subscription(domain, self.routes, binder)
        responders: dict[str, Responder] = {subscription.address: subscription}
        responders.update(dict.fromkeys(allocation.addresses, allocation))
        router = Router(config, domain, self.routes, responders, journal, self.counts)
        reception = Reception(self.handshake, router.route, self.sessions.tell, journal, self.counts)
        self.receive = reception.receive
        self.garbled = reception.garbled
