"""
The entries of the domain registry, next to what the node knows: those of a user, and that of an address.
"""

from collections.abc import Generator
from itertools import islice
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, inlineCallbacks

from msgnode.admin.reads.address_report import AddressReport, report_address
from msgnode.admin.reads.inspector import Inspector
from msgnode.protocol.errors import Rejected

MAX_ENTRIES = 200
DEADLINE_SECONDS = 1.0  # of a look for another report
OF_THE_NODE = ("runtime:", "domain:", "mn:", "global:")  # schemes of which the registry keeps no entries


class RegistryQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    A question for entries: those of a `user`, or that of an address, `url`; one of them.
    """

    user: str = ""
    url: str = ""


class RegistryReport(msgspec.Struct):
    """
    The entries by address, at most 200 of their `number`.
    """

    entries: dict[str, Any]
    number: int


@inlineCallbacks
def list_entries(inspector: Inspector, query: RegistryQuery) -> Generator[Deferred[Any], Any, RegistryReport]:
    """
    Fires with the entries. Fails with Rejected if the query is wrong, or the registry does not answer.
    """
    if bool(query.user) == bool(query.url):
        raise Rejected("expected one of the parameters user and url")
    found = yield _ask(inspector, query.user or query.url)
    if found["code"] == 404:
        return RegistryReport({}, 0)
    entries = found.get("value")
    if not isinstance(entries, dict):
        raise Rejected(
            f"the domain registry says {found.get('description', 'nothing')}"[:300], 502, "back-end"
        )
    if query.url and not isinstance(entries.get(query.url), dict):
        entries = {query.url: entries}  # one record, without its address
    return RegistryReport(dict(islice(entries.items(), MAX_ENTRIES)), len(entries))


@inlineCallbacks
def look_up_address(inspector: Inspector, address: str) -> Generator[Deferred[Any], Any, AddressReport]:
    """
    Fires with the report on an address, with its entry in the registry.
    """
    report = report_address(inspector, address)
    if inspector.node.registry is None or report.is_of_node or address.startswith(OF_THE_NODE):
        return report
    try:
        found = yield _ask(inspector, address, DEADLINE_SECONDS)
    except Rejected as why:
        report.registry_error = str(why)[:300]
        return report
    if found["code"] != 404:
        report.registry = found.get("value")
        report.registry_error = "" if report.registry else str(found.get("description", ""))[:300]
    return report


def _ask(inspector: Inspector, resource: str, deadline: float | None = None) -> Deferred[dict[str, Any]]:
    registry = inspector.node.registry
    if registry is None:
        text = "this node calls no domain registry (registry.url is none, or a stub is in its place)"
        raise Rejected(text, 404, "not-found")
    asked: Deferred[dict[str, Any]] = Deferred.fromCoroutine(registry.find(resource, deadline))
    return asked
