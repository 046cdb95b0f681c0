"""
Address allocation: the node makes up addresses and binds them to who asks.

Spoken at three addresses.  A pool is a scheme whose
addresses are finite and come from elsewhere, such as the SIP accounts of an
IMS: they are leased to a session and free again at its end.
"""

from typing import Any
from uuid import uuid4

from msgnode.address import LONGEST, Domain, is_scheme
from msgnode.binding import Binder, flat
from msgnode.config import Config
from msgnode.errors import Rejected
from msgnode.keeping import Keeping
from msgnode.keys import Keys
from msgnode.message import Message
from msgnode.pool import Pool
from msgnode.routes import ALLOCATED, RoutingTable
from msgnode.session import Session

_BESIDE = ("/subscription", "/changes", "/children/")  # what a reporter binds beside its object


class Allocation:
    """
    Answers `create` and `delete` at the three allocation addresses.
    """

    def __init__(
        self, config: Config, domain: Domain, routes: RoutingTable, binder: Binder, keeping: Keeping
    ) -> None:
        self._keeping = keeping
        self._limits = config.allocation
        self._pools = {pool.scheme: Pool(pool.all_addresses()) for pool in config.pools.values()}
        self._domain = domain
        self._routes = routes
        self._binder = binder
        self._hyperties = f"{domain.node}/hyperty-address-allocation"

    @property
    def addresses(self) -> tuple[str, ...]:
        node = self._domain.node
        return (f"{node}/address-allocation", self._hyperties, f"{node}/object-address-allocation")

    def respond(self, message: Message, session: Session) -> Message:
        """
        200 with `value.allocated` to a create, a bare 200 to a delete.
        """
        kind = message.type.lower()
        body = message.fields()
        if kind == "create":
            allocated = self._allocate(message, body, session)
            return message.reply({"code": 200, "value": {"allocated": allocated}})
        if kind == "delete":
            self._release(message, body, session)
            return message.reply({"code": 200})
        raise Rejected(f"allocation understands create and delete, not {message.type!r}")

    def _allocate(self, message: Message, body: dict[str, Any], session: Session) -> list[str]:
        value = body.get("value")
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise Rejected(f"'value' must be an object, not {value!r}"[:200])
        number, most = value.get("number", 1), self._limits.per_request
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
            raise Rejected(f"'number' must be an integer from 1 to {most}, not {number!r}"[:200])
        key = value.get("allocationKey")
        if key is not None and not (isinstance(key, str) and len(key) <= LONGEST):
            raise Rejected(f"'allocationKey' must be a string of at most {LONGEST}, not {key!r}"[:200])
        scheme = "hyperty" if message.to == self._hyperties else body.get("scheme") or "hyperty"
        if not isinstance(scheme, str) or not is_scheme(scheme):
            raise Rejected(f"'scheme' must be the scheme of a URL, such as 'comm', not {scheme!r}"[:200])
        allocated = self._new(scheme, number)
        children = [name for name in flat(body.get("childrenResources")) if "://" not in name]
        channels = [f"{address}/children/{name}" for address in allocated for name in children]
        self._binder.bind([*allocated, *channels], session, ALLOCATED)
        message.resources = allocated
        if key is not None:
            if session.keys is None:
                session.keys = Keys()
            session.keys.add(key, allocated)
            self._keeping.keyed(session.sid, key, allocated)
        return allocated

    def _new(self, scheme: str, number: int) -> list[str]:
        pool = self._pools.get(scheme)
        if pool is not None:
            return pool.free(number, self._routes.is_allocated)
        return [f"{scheme}://{self._domain.name}/{uuid4()}" for _ in range(number)]

    def _release(self, message: Message, body: dict[str, Any], session: Session) -> None:
        """
        Keys, addresses, lists in lists, an object with its children.
        """
        if "resource" not in body and "childrenResources" not in body:
            raise Rejected("name what to de-allocate in 'resource' or 'childrenResources'")
        named = flat(body.get("resource")) + flat(body.get("childrenResources"))
        message.resources = named
        children = [name for name in named if "://" not in name]
        for name in named:
            keys = session.keys
            if keys is not None and name in keys:
                for address in keys.take(name):
                    self._drop(address, children, session)
            elif name in session.bindings:
                self._drop(name, children, session)

    def _drop(self, address: str, children: list[str], session: Session) -> None:
        self._routes.unbind(address, session)
        if session.keys is not None:
            session.keys.forget(address)
            self._keeping.unkeyed(session.sid, address)
        for suffix in _BESIDE:
            self._routes.unbind(address + suffix, session)
        for name in children:
            self._routes.unbind(f"{address}/children/{name}", session)
