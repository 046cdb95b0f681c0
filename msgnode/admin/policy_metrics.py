"""
The decisions of the policies as Prometheus metrics.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from msgnode.policy.administration.policy_store import PolicyStore

MAX_RULES = 200  # with a label of their own; the others are counted together


class PolicyCollector(Collector):
    """
    A collector that reads the counters of the policies when Prometheus scrapes; without policies they are 0.
    """

    def __init__(self, policies: PolicyStore) -> None:
        self._policies = policies

    def collect(self) -> Iterator[Metric]:
        enforcement, live = self._policies.enforcement, self._policies.live
        yield GaugeMetricFamily(
            "msgnode_policy_version",
            "Number of the policy version that is live, 0 for none.",
            live.number if live is not None and enforcement.is_open else 0,
        )
        tallies = sorted(enforcement.decisions, key=lambda tally: -tally.hits)
        decisions = CounterMetricFamily(
            "msgnode_policy_decisions", "Decisions by point and effect.", labels=["point", "effect"]
        )
        for (point, effect), number in _sums((t.point, t.effect, t.hits) for t in tallies).items():
            decisions.add_metric([point, effect], number)
        yield decisions
        hits = CounterMetricFamily("msgnode_policy_rule_hits", "Decisions by rule.", labels=["rule"])
        by_rule: dict[str, int] = {}
        for tally in tallies:
            rule = tally.rule or "none"
            if rule not in by_rule and len(by_rule) == MAX_RULES:
                rule = "other"
            by_rule[rule] = by_rule.get(rule, 0) + tally.hits
        for rule, number in by_rule.items():
            hits.add_metric([rule], number)
        yield hits
        log = enforcement.decisions.log
        for name, text, number in (
            (
                "differences",
                "Decisions that the policies in the dry run would make differently.",
                enforcement.dry_run_differences,
            ),
            (
                "failures",
                "Policy documents that were rejected, and failed reads of the source.",
                self._policies.failed,
            ),
            (
                "unlogged",
                "Decisions left out of the decision log at the sender's request.",
                enforcement.decisions.unlogged,
            ),
            (
                "lines_lost",
                "Lines lost because the decision log could not be written.",
                log.lost if log is not None else 0,
            ),
        ):
            yield CounterMetricFamily(f"msgnode_policy_{name}", text, number)


def _sums(rows: Iterator[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for point, effect, number in rows:
        sums[point, effect] = sums.get((point, effect), 0) + number
    return sums
