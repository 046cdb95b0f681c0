"""
The pools of addresses: how many are leased, and to whom.
"""

from typing import ClassVar

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.reads.inspector import Inspector, checked_limit
from msgnode.admin.survey import in_slices


class PoolQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    The scheme of one pool, or "" for all; `limit` is for the leases that are shown.
    """

    scheme: str = ""
    limit: int = 200


class Lease(msgspec.Struct):
    """
    An address of a pool, and the session that has it; "" if another node of the domain has it.
    """

    scheme: str
    address: str
    session: str


class PoolReport(msgspec.Struct):
    """
    The pools by scheme: addresses, how many are leased, and for whom they are; and the leases, up to the
    limit.
    """

    rows_in: ClassVar[str] = "leases"

    sizes: dict[str, int]
    leased: dict[str, int]
    clients: dict[str, str]
    leases: list[Lease]


def report_pools(inspector: Inspector, query: PoolQuery) -> Deferred[PoolReport]:
    """
    The report. Raises Rejected if the query is wrong, or too many lists are being made.
    """
    limit, allocation = checked_limit(query.limit), inspector.node.allocation
    found = PoolReport({}, {}, {}, [])

    def look(scheme: str, address: str) -> None:
        found.sizes[scheme] = found.sizes.get(scheme, 0) + 1
        found.leased.setdefault(scheme, 0)
        pool = allocation.pool(scheme)
        found.clients.setdefault(scheme, pool.clients if pool is not None else "")
        if not allocation.is_leased(address):
            return
        found.leased[scheme] += 1
        if len(found.leases) < limit:
            holder = allocation.holder(address)
            found.leases.append(Lease(scheme, address, holder.runtime if holder is not None else ""))

    steps = in_slices(
        look(scheme, address)  # type: ignore[func-returns-value]
        for scheme, address in allocation.all_of()
        if query.scheme in ("", scheme)
    )
    return inspector.walk(steps, lambda: found)
