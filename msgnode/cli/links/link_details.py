"""
The details of one domain's links and streams, for a person.
"""

from typing import Any

import click

from msgnode.cli.links.layout import colored, count, duration, size
from msgnode.structures.log_limits import printable

_DIALLED = {"us": ", dialled by us", "them": ", dialled by them"}


def details(domain: dict[str, Any]) -> list[str]:
    """
    Returns the lines about a domain: its links, then its streams.
    """
    cost = "no route" if domain["cost"] is None else f"the route costs {domain['cost']:,}"
    known = "configured" if domain["is_configured"] else "not configured"
    state = colored(
        domain["admin_state"], "up" if domain["admin_state"] == "enabled" else domain["admin_state"]
    )
    lines = [f"{click.style(domain['domain'], bold=True)}: {known}, {state}, {cost}"]
    grants, upstream = domain["grants"], domain["upstream"]
    if grants or upstream:
        lines.append(f"subscriptions: {grants:,} of its clients here, {upstream:,} of clients here there")
    for link in domain["links"]:
        lines += ["", f"link to {link['node'] or domain['domain']}", *_fields(_link(link))]
    for stream in domain["streams"]:
        lines += ["", f"messages for {stream['destination']}", *_fields(_stream(stream))]
    return lines


def _fields(found: dict[str, str]) -> list[str]:
    return [f"  {name:12} {text}" for name, text in found.items() if text]


def _link(link: dict[str, Any]) -> dict[str, str]:
    waiting = [f"priority {n}: {number:,}" for n, number in enumerate(link["queue"]) if number][::-1]
    how = "fixed" if link["is_cost_fixed"] else "measured"
    days = link["certificate_days"]
    error, since = printable(link["last_error"]), link["state_seconds"]
    return {
        "state": colored(link["state"])
        + (f" for {duration(since)}" if link["state"] != "configured" and since is not None else "")
        + _DIALLED.get(link["dialled_by"], ""),
        "url": link["url"],
        "round trip": duration(link["round_trip"]),
        "cost": "" if link["cost"] is None else f"{link['cost']:,}, {how}",
        "queue": f"{count(sum(link['queue']), 'datagram')}, {size(link['queue_bytes'])}"
        + (f"; {', '.join(waiting)}" if waiting else ""),
        "bytes": f"{size(link['bytes_in'])} in, {size(link['bytes_out'])} out",
        "certificate": "" if days is None else _certificate(days),
        "transit": "permitted" if link["transit"] else "not permitted",
        "last error": f"{error} ({duration(link['last_error_seconds'])} ago)" if error else "",
    }


def _certificate(days: float) -> str:
    return f"ends in {days:.0f} days" if days >= 0 else colored(f"ended {-days:.0f} days ago", "failed")


def _stream(stream: dict[str, Any]) -> dict[str, str]:
    undelivered = f"{count(stream['undelivered'], 'message')}, {size(stream['undelivered_bytes'])}"
    if stream["undelivered"]:
        undelivered += f", the oldest for {duration(stream['oldest_seconds'])}"
    return {
        "undelivered": undelivered,
        "window": count(stream["window"], "message"),
        "sent again": f"{stream['sent_again']:,}",
        "in doubt": f"{stream['in_doubt']:,}",
        "saved": size(stream["bytes_saved"]) if stream["bytes_saved"] else "",
        "refused": ", ".join(f"{reason}: {number:,}" for reason, number in stream["refused"].items()),
    }
