"""
The listeners of the node, with their certificates, and the connections that came by each.
"""

from collections.abc import Mapping

import msgspec

from msgnode.admin.reads.inspector import Inspector

CLIENT_KINDS = ("web", "line")
EVERY_ADDRESS = ("0.0.0.0", "::", "")


class ListenerRow(msgspec.Struct):
    """
    A listener; with TLS the subject of its certificate, and its end in seconds since 1970.

    `connections` has the open WebSockets and lines that came by it, null of a listener that is not for
    clients. Requests to `/poll` and `/message` come and go by connections of their own.
    """

    kind: str
    where: str
    tls: bool
    cert_subject: str
    cert_not_after: float | None
    connections: int | None


def list_listeners(inspector: Inspector) -> list[ListenerRow]:
    by_address = inspector.node.sessions.connections.by_local_address
    return [
        ListenerRow(
            each.kind,
            each.where,
            each.tls,
            each.subject,
            each.not_after,
            connections_to(each.where, by_address) if each.kind in CLIENT_KINDS else None,
        )
        for each in inspector.facts.listeners()
    ]


def connections_to(where: str, by_address: Mapping[str, int]) -> int:
    """
    The connections to a listener; one at every address of the machine has those to its port.
    """
    host, _, port = where.rpartition(":")
    if host not in EVERY_ADDRESS:
        return by_address.get(where, 0)
    return sum(number for address, number in by_address.items() if address.rpartition(":")[2] == port)
