"""
The endpoints of the admin API that read the node: sessions, addresses, refusals, memory and more.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgnode.admin.access.named_tokens import VIEWER
from msgnode.admin.api.endpoint import HOLDER, Call, Endpoint, NoQuery
from msgnode.admin.lookups.registry_entries import (
    RegistryQuery,
    RegistryReport,
    list_entries,
    look_up_address,
)
from msgnode.admin.reads.address_report import (
    AddressList,
    AddressReport,
    PrefixQuery,
    list_addresses,
)
from msgnode.admin.reads.connection_list import ConnectionList, ConnectionQuery, list_connections
from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.node.config_report import ConfigReport, report_config
from msgnode.admin.reads.node.memory import MemoryReport, report_memory
from msgnode.admin.reads.node.node_list import NodeList, list_nodes
from msgnode.admin.reads.node.node_report import NodeReport, report_node
from msgnode.admin.reads.pools import PoolQuery, PoolReport, report_pools
from msgnode.admin.reads.refusal_list import RefusalList, RefusalQuery, list_refusals
from msgnode.admin.reads.session_list import SessionList, SessionQuery, list_sessions
from msgnode.admin.reads.session_report import AddressPage, SessionReport, report_session
from msgnode.admin.reservations.reservation_list import ReservationList, ReservationQuery, list_reservations


def read(
    path: str,
    summary: str,
    act: Callable[[Call], Any],
    answer: Any,
    query: Any = NoQuery,
    role: str = VIEWER,
    reach: str = "",
) -> Endpoint:
    """
    The endpoint of a read.
    """
    return Endpoint("GET", path, role, summary, act, answer, query, is_read=True, reach=reach)


def node_reads(inspector: Inspector) -> list[Endpoint]:
    """
    The endpoints that need no more than the node itself.
    """
    return [*_of_the_node(inspector), *_of_clients(inspector), *_of_addresses(inspector)]


def _by_operator(inspector: Inspector, function: Callable[[Inspector, Any], Any]) -> Callable[[Call], Any]:
    """
    The act of a list, which counts as one of the operator who asks.
    """
    return lambda call: function(inspector.by(call.operator), call.query)


def _of_the_node(inspector: Inspector) -> list[Endpoint]:
    return [
        read(
            "node",
            "The node: load, limits, certificates, troubles.",
            lambda call: report_node(inspector),
            NodeReport,
        ),
        read(
            "config",
            "The configuration, and where each key comes from.",
            lambda call: report_config(inspector),
            ConfigReport,
        ),
        read(
            "memory",
            "Memory by owner.",
            lambda call: report_memory(inspector.by(call.operator)),
            MemoryReport,
        ),
        read("nodes", "The nodes of the domain.", lambda call: list_nodes(inspector), NodeList),
    ]


def _of_clients(inspector: Inspector) -> list[Endpoint]:
    of = partial(_by_operator, inspector)
    return [
        read("sessions", "Sessions, filtered and sorted.", of(list_sessions), SessionList, SessionQuery),
        read(
            "sessions/{runtime}",
            "One session, with addresses, queue and refusals.",
            lambda call: report_session(inspector, call.path["runtime"], call.query),
            SessionReport,
            AddressPage,
            reach=HOLDER,
        ),
        read(
            "connections",
            "Connections, open or closed.",
            of(list_connections),
            ConnectionList,
            ConnectionQuery,
        ),
        read("refusals", "Refused and dropped messages.", of(list_refusals), RefusalList, RefusalQuery),
    ]


def _of_addresses(inspector: Inspector) -> list[Endpoint]:
    of = partial(_by_operator, inspector)
    return [
        read("addresses", "Addresses that begin with a text.", of(list_addresses), AddressList, PrefixQuery),
        read(
            "addresses/{address}",
            "The sessions that hear an address, and why.",
            lambda call: look_up_address(inspector, call.path["address"]),
            AddressReport,
        ),
        read("pools", "Pools of addresses, and their leases.", of(report_pools), PoolReport, PoolQuery),
        read(
            "reservations",
            "Reservations of relay bandwidth at the embedded QoS broker.",
            of(list_reservations),
            ReservationList,
            ReservationQuery,
        ),
        read("registry", "Entries of the domain registry.", of(list_entries), RegistryReport, RegistryQuery),
    ]
