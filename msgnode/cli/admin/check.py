"""
`msgnode admin check`: the node against thresholds, for Nagios and for Prometheus.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from msgnode.cli import LATE, NOT_CONNECTED
from msgnode.cli.admin.times import Duration
from msgnode.cli.connection import Console
from msgnode.cli.links.admin_client import AdminClient, asks_admin
from msgnode.structures.log_limits import printable

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


class Finding(NamedTuple):
    """
    The result of one check: its level, its name, a sentence, and the value that was compared, if it has one.
    """

    level: int
    name: str
    text: str
    value: float | None = None
    unit: str = ""
    warn: float | None = None
    critical: float | None = None


class Failed(Exception):
    """
    A request that failed; `level` is how bad that is.
    """

    def __init__(self, text: str, level: int) -> None:
        super().__init__(text)
        self.level = level


class RaisingConsole(Console):
    """
    A console that raises Failed in the place of leaving the program.
    """

    def stop(self, text: str, status: int, **more: Any) -> NoReturn:
        raise Failed(click.unstyle(text), CRITICAL if status in (NOT_CONNECTED, LATE) else UNKNOWN)


class Share(click.ParamType):  # type: ignore[type-arg]
    """
    A percentage such as 80%; it becomes 0.8.
    """

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"([0-9]{1,3})%", str(value))
        if found is None:
            self.fail(f"{value!r} is not a percentage such as 80%.", param, ctx)
        return int(found[1]) / 100


_THRESHOLDS = (
    click.option("--lag-warn", type=click.FloatRange(0), default=0.05, show_default=True),
    click.option("--lag-crit", type=click.FloatRange(0), default=0.1, show_default=True),
    click.option(
        "--waiting-warn", type=Share(), default="60%", show_default=True, help="Of session.max_memory_bytes."
    ),
    click.option("--waiting-crit", type=Share(), default="80%", show_default=True),
    click.option(
        "--limit-warn", type=Share(), default="80%", show_default=True, help="Of every other limit."
    ),
    click.option("--limit-crit", type=Share(), default="95%", show_default=True),
    click.option("--cert-warn", type=Duration(), default="14d", show_default=True),
    click.option("--cert-crit", type=Duration(), default="7d", show_default=True),
    click.option("--slow-warn", type=click.IntRange(1), default=10, show_default=True, help="Clients."),
    click.option("--slow-crit", type=click.IntRange(1), default=1000, show_default=True),
)


def thresholds(command: Any) -> Any:
    for option in reversed(_THRESHOLDS):
        command = option(command)
    return command


@click.command(short_help="Check the node against thresholds, for monitoring.")
@thresholds
@click.option(
    "--format",
    "form",
    type=click.Choice(["nagios", "prometheus", "json"]),
    default="nagios",
    show_default=True,
)
@asks_admin
def check(form: str, admin: str, state: Path | None, as_json: bool, **given: float) -> None:
    """
    Check the node: health, disk, lag of the event loop, memory, limits, certificates, back ends, clients that
    do not read.

    \b
    Examples:
      msgnode admin check
      msgnode admin check --cert-crit 3d --waiting-crit 90%
      msgnode admin check --format prometheus > /var/lib/node_exporter/msgnode.prom

    \b
    Exit code, as Nagios has it: 0 OK, 1 warning, 2 critical (or not
    reached), 3 unknown (a token that is not accepted).
    """
    try:
        client = AdminClient(admin, state, False, RaisingConsole(False))
        found = sorted(findings(client.get("node"), given, time.time()), key=lambda each: -each.level)
    except Failed as why:
        found = [Finding(why.level, "node", str(why).partition("\n")[0])]
    draw = {"nagios": _nagios, "prometheus": _prometheus, "json": _json}["json" if as_json else form]
    click.echo(draw(found))
    raise SystemExit(max(each.level for each in found))


def findings(node: dict[str, Any], given: dict[str, float], now: float) -> Iterator[Finding]:
    """
    Yields what the checks find.
    """
    status = node["status"]
    level = {"up": OK, "draining": WARNING}.get(status, CRITICAL)
    reasons = [each["text"] for each in node["troubles"] if each["what"] in ("disk", "cluster", "draining")]
    yield Finding(level, "node", f"{node['node']} is {status}{': ' if reasons else ''}{'; '.join(reasons)}")
    lag = node["loop_lag"]["p99_1m"]
    text = f"the event loop is late by {lag:.3f} s"
    yield _compared("lag", text, lag, given["lag_warn"], given["lag_crit"], "s")
    for name, use in {**node["uses"], "file_descriptors": node["fds"]}.items():
        if use["limit"]:
            kind = "waiting" if name == "memory_bytes" else "limit"
            share = use["used"] / use["limit"]
            text = f"{share:.0%} of {use['limit']:,.0f} used"
            yield _compared(name, text, share, given[f"{kind}_warn"], given[f"{kind}_crit"])
    yield _compared(
        "slow", f"{node['slow']:,} clients do not read", node["slow"], given["slow_warn"], given["slow_crit"]
    )
    ends = [(each["cert_not_after"] - now, each) for each in node["listeners"] if each["cert_not_after"]]
    if ends:
        left, listener = min(ends, key=lambda each: each[0])
        text = f"the certificate of {listener['kind']} {listener['where']} ends in {left / 86400:.1f} days"
        level = CRITICAL if left < given["cert_crit"] else WARNING if left < given["cert_warn"] else OK
        yield Finding(level, "certificate", text, left, "s", given["cert_warn"], given["cert_crit"])
    down = [each["name"] for each in node["back_ends"] if each["state"] != "closed"]
    text = f"no answer from {', '.join(down)}" if down else f"{len(node['back_ends'])} back ends answer"
    yield Finding(WARNING if down else OK, "back_ends", text, len(down))
    last = node["last_reload"]
    if last is not None:
        yield Finding(OK if last["ok"] else WARNING, "reload", f"the last reload: {last['text']}")


def _compared(name: str, text: str, value: float, warn: float, critical: float, unit: str = "") -> Finding:
    level = CRITICAL if value >= critical else WARNING if value >= warn else OK
    return Finding(level, name, text, value, unit, warn, critical)


def _nagios(found: list[Finding]) -> str:
    worst = found[0].level
    shown = [each for each in found if each.level == worst and worst != OK] or found[-1:] + found[:1]
    if worst == OK:
        shown = [each for each in found if each.name == "node"]
    text = "; ".join(printable(f"{each.name}: {each.text}") for each in shown).replace("|", "/")
    values = " ".join(
        f"{each.name}={each.value:g}{each.unit};{_number(each.warn)};{_number(each.critical)}"
        for each in found
        if each.value is not None
    )
    lines = [f"msgnode {WORDS[worst]}: {text}{' | ' if values else ''}{values}"]
    lines += [f"{WORDS[each.level]} {each.name}: {printable(each.text)}".replace("|", "/") for each in found]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _prometheus(found: list[Finding]) -> str:
    lines = [
        "# HELP msgnode_check_level The result of a check: 0 OK, 1 warning, 2 critical, 3 unknown.",
        "# TYPE msgnode_check_level gauge",
    ]
    lines += [f'msgnode_check_level{{check="{each.name}"}} {each.level}' for each in found]
    lines += ["# HELP msgnode_check_value The value that was compared.", "# TYPE msgnode_check_value gauge"]
    lines += [
        f'msgnode_check_value{{check="{each.name}"}} {each.value:g}'
        for each in found
        if each.value is not None
    ]
    return "\n".join(lines)


def _json(found: list[Finding]) -> str:
    checks = [{**each._asdict(), "level": WORDS[each.level].lower()} for each in found]
    return json.dumps({"level": WORDS[found[0].level].lower(), "checks": checks}, ensure_ascii=False)
