"""
Foreign stubs as Prometheus metrics.
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from msgnode.foreign.lifecycle.stub_record import EVENTS
from msgnode.foreign.stubs import ForeignStubs

# Name after `msgnode_`, kind, labels, HELP text, in the order of the page.
METRICS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("stubs", "gauge", ("state",), "Foreign stubs in the registry, by state."),
    ("stub_waiting_messages", "gauge", (), "Messages that wait for a foreign stub."),
    ("stub_addresses", "gauge", (), "Addresses that are subscribed at foreign nodes."),
    ("stub_events_total", "counter", ("event",), "Events of foreign stubs and of their messages."),
    ("stub_limits_total", "counter", ("limit",), "How often foreign stubs have reached a limit."),
)


class StubCollector(Collector):
    """
    A collector that reads the registry of stubs; a node that accepts none has none of its metrics.
    """

    def __init__(self, stubs: Callable[[], ForeignStubs | None]) -> None:
        self._stubs = stubs

    def collect(self) -> Iterator[Metric]:
        stubs = self._stubs()
        if stubs is None or stubs.domains is None:
            return
        found, figures = stubs.to_builtins(), stubs.figures()
        events = {event: figures[event] for event in EVENTS}
        events["refused"] = sum(figures.values()) - sum(events.values())
        values: tuple[dict[tuple[str, ...], float], ...] = (
            {(state,): number for state, number in stubs.by_state().items()},
            {(): sum(each["waiting"] for each in found)},
            {(): sum(each["subscribed"] for each in found)},
            {(event,): number for event, number in events.items()},
            {(limit,): number for limit, number in stubs.limits().items()},
        )
        for (name, kind, labels, text), numbers in zip(METRICS, values, strict=True):
            make = GaugeMetricFamily if kind == "gauge" else CounterMetricFamily
            family = make(f"msgnode_{name.removesuffix('_total')}", text, labels=labels)
            for of_labels, number in numbers.items():
                family.add_metric(of_labels, number)
            yield family
