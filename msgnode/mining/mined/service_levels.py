"""
Service levels: how much of the error budget is spent, and how fast.

The error budget of an objective of 99 % is 1 % of the messages of its period. The burn rate is the share of
bad messages in a window over that 1 %: at 1 the budget lasts exactly the period, at 14.4 a month's budget
lasts two days (Google's SRE workbook, "Alerting on SLOs").
"""

import re
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Source
from msgnode.mining.analyses.columns import count_where
from msgnode.mining.mined.period import SECOND
from msgnode.mining.mined.slo_file import SLO
from msgnode.mining.report.units import count, duration, share
from msgnode.mining.sql.expressions import FAILURE, domain

HOUR_SECONDS, DAY_SECONDS = 3600, 86_400
WINDOWS = {"1h": HOUR_SECONDS, "6h": 6 * HOUR_SECONDS}


@dataclass(frozen=True)
class Window:
    """
    The messages of a window of time that an objective counts, and how many of them were bad.
    """

    total: int
    bad: int

    def burn(self, objective: float) -> float | None:
        """
        The burn rate; None without messages.
        """
        return None if not self.total else self.bad / self.total / (1 - objective)


@dataclass(frozen=True)
class Level:
    """
    The state of an objective: its whole period, the last hour and the last six.

    `seconds` is how much of the period has lines.
    """

    slo: SLO
    seconds: float
    period: Window
    hour: Window
    six_hours: Window

    @property
    def budget_left(self) -> float | None:
        """
        The share of the error budget that is left, below 0 if it is overspent; None without messages.
        """
        burnt = self.period.burn(self.slo.share)
        return None if burnt is None else 1 - burnt * min(1.0, self.seconds / (self.slo.days * DAY_SECONDS))

    @property
    def burn(self) -> dict[str, float | None]:
        return {"1h": self.hour.burn(self.slo.share), "6h": self.six_hours.burn(self.slo.share)}

    @property
    def state(self) -> str:
        """
        `spent`, `burning` too fast, `met`, or `no-data`.
        """
        left = self.budget_left
        if left is None:
            return "no-data"
        fast = {"1h": self.slo.burn_1h, "6h": self.slo.burn_6h}
        if left < 0:
            return "spent"
        return "burning" if any((self.burn[name] or 0) >= limit for name, limit in fast.items()) else "met"

    def words(self) -> str:
        """
        The state as a sentence.
        """
        slo, left = self.slo, self.budget_left
        if left is None:
            return f"{slo.name}: no data"
        good = share(self.period.total - self.period.bad, self.period.total)
        what = "not refused" if slo.not_refused else f"answered within {duration(slo.within_ms / 1000)}"
        burning = ", ".join(
            f"burn rate {rate:.3g} over {name[:-1]} h" for name, rate in self.burn.items() if rate is not None
        )
        budget = f"{left * 100:.0f} % of the error budget left" if left >= 0 else "the error budget is spent"
        rates = f"; {burning}" if burning else ""
        of = count(self.period.total, "message" if slo.not_refused else "request")
        found = f"{good} of {of} {what}, objective {slo.share * 100:.6g} %"
        return f"{slo.name}: {self.state}. {found}; {budget}{rates}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.slo.name, "state": self.state, "budget_left": self.budget_left, "burn": self.burn,
            "period": asdict(self.period), "1h": asdict(self.hour), "6h": asdict(self.six_hours),
        }  # fmt: skip


def measure(slo: SLO, rows: dict[Source, DataFrame], end: int, begin: int) -> Level:
    """
    The level of an objective at `end`, in a directory that has lines from `begin` (nanoseconds since 1970).
    """
    population, bad = (
        _refused(slo, rows["messages"]) if slo.not_refused else _late(slo, rows["exchanges"], end)
    )
    spans = {"period": slo.days * DAY_SECONDS, **WINDOWS}
    sums = []
    for name, seconds in spans.items():
        within = (F.col("time") >= end - seconds * SECOND) & (F.col("time") < end)
        sums += [count_where(within).alias(f"total_{name}"), count_where(within & bad).alias(f"bad_{name}")]
    found = population.agg(*sums).first()
    assert found is not None
    windows = [Window(found[f"total_{name}"] or 0, found[f"bad_{name}"] or 0) for name in spans]
    return Level(slo, max(0, end - begin) / SECOND, *windows)


def _refused(slo: SLO, messages: DataFrame) -> tuple[DataFrame, Column]:
    kept = messages.where(_of_type(slo, F.lower("type")))
    if slo.domain:
        kept = kept.where(F.expr(domain("`from`")).isin(*slo.domain))
    if slo.except_codes:
        excepted = F.expr(FAILURE) & F.col("code").isin(*slo.except_codes)
        kept = kept.where(~F.coalesce(excepted, F.lit(False)))
    return kept, F.expr(FAILURE)


def _late(slo: SLO, exchanges: DataFrame, end: int) -> tuple[DataFrame, Column]:
    """
    The requests, and which of them were answered too late or never.

    A request that is younger than the time allowed, and not answered yet, does not count.
    """
    allowed = int(slo.within_ms * 1000)
    kept = exchanges.where("expects").where(_of_type(slo, F.lower("type")))
    if slo.domain:
        kept = kept.where(F.expr(domain("asked")).isin(*slo.domain))
    waiting = (F.col("answers") == 0) & (F.col("time") > end - allowed * 1000)
    return kept.where(~waiting), (F.col("answers") == 0) | (F.col("micros") > allowed)


def _of_type(slo: SLO, type: Column) -> Column:
    return type.isin(*slo.type) if slo.type else F.lit(True)


def prometheus(levels: list[Level], newest: int) -> str:
    """
    The levels in Prometheus' text format, for node_exporter's textfile collector or a push gateway.
    """
    metrics: dict[str, tuple[str, list[tuple[str, float]]]] = {
        "msgnode_slo_objective": ("Share of messages that must be good.", []),
        "msgnode_slo_good_ratio": ("Share of good messages in the period of the objective.", []),
        "msgnode_slo_error_budget_left_ratio": ("Share of the error budget left; below 0 if overspent.", []),
        "msgnode_slo_burn_rate": ("Share of bad messages in the window over the share allowed.", []),
        "msgnode_slo_met": ("1 if the objective is met and its budget does not burn too fast.", []),
    }

    def add(name: str, slo: str, value: float | None, more: str = "") -> None:
        if value is not None:
            metrics[name][1].append((f'{{slo="{_escaped(slo)}"{more}}}', value))

    for level in levels:
        name, period = level.slo.name, level.period
        add("msgnode_slo_objective", name, level.slo.share)
        good = (period.total - period.bad) / period.total if period.total else None
        add("msgnode_slo_good_ratio", name, good)
        add("msgnode_slo_error_budget_left_ratio", name, level.budget_left)
        for window, rate in level.burn.items():
            add("msgnode_slo_burn_rate", name, rate, f',window="{window}"')
        add("msgnode_slo_met", name, None if level.state == "no-data" else float(level.state == "met"))
    lines = []
    for name, (text, values) in metrics.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {value:.10g}" for labels, value in values]
    name = "msgnode_slo_newest_line_timestamp_seconds"
    lines += [f"# HELP {name} Time of the newest line of the log.", f"# TYPE {name} gauge"]
    return "\n".join([*lines, f"{name} {newest // 1_000_000 / 1000:.3f}"]) + "\n"


def _escaped(text: str) -> str:
    return re.sub(r"[\\\"\n]", lambda found: {"\\": r"\\", '"': r"\"", "\n": r"\n"}[found[0]], text)
