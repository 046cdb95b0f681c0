"""
Metrics of the process and of Python's garbage collector, by the names of the Prometheus client libraries.

The collector of prometheus_client lists all descriptors at each scrape, which takes milliseconds when there
are many thousands.
"""

import gc
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
MAX_LISTED = 2000  # descriptors that are listed at each scrape where the system has no number of them
LISTED_SECONDS = 60.0  # with more of them they are listed so seldom


class ProcessFigures:
    """
    The figures of this process from /proc; on other systems those that Python has.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._own = Path(proc, "self")
        self._made = time.monotonic()
        self._started = 0.0
        self._listed = 0
        self._listed_at = float("-inf")

    @property
    def fd_limit(self) -> int:
        """
        Descriptors that the process may have open.
        """
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def open_fds(self) -> int:
        """
        Descriptors that are open. Linux since 6.2 has their number; else many are counted once a minute.
        """
        place = self._own / "fd"
        try:
            number = place.stat().st_size
            if number:
                return number
            now = time.monotonic()
            if self._listed < MAX_LISTED or now - self._listed_at > LISTED_SECONDS:
                self._listed, self._listed_at = len(os.listdir(place)), now
        except OSError:
            return 0
        return self._listed

    def memory(self) -> tuple[int, int]:
        """
        Virtual and resident memory in bytes.
        """
        try:
            pages = (self._own / "statm").read_text().split()
        except OSError:
            return 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return int(pages[0]) * _PAGE, int(pages[1]) * _PAGE

    def cpu_seconds(self) -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def collections(self) -> int:
        """
        Collections of the garbage collector, of all generations.
        """
        return sum(stats["collections"] for stats in gc.get_stats())

    def started(self) -> float:
        """
        When the process started, in seconds since 1970, as the clock said when this was first asked: a clock
        that is set must not look like a restart.
        """
        if not self._started:
            self._started = time.time() - self._age()
        return self._started

    def _age(self) -> float:
        """
        For how many seconds the process has run. It needs no file but the process's own, for the systemd unit
        hides all others (`ProcSubset=pid`).
        """
        try:
            stat = (self._own / "stat").read_text()
            since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        except (OSError, AttributeError):  # not on Linux
            return time.monotonic() - self._made
        return since_boot - float(stat.rpartition(")")[2].split()[19]) / _TICKS


class ProcessCollector(Collector):
    """
    A collector of `process_*` and `python_gc_*`.
    """

    def __init__(self, figures: ProcessFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        virtual, resident = figures.memory()
        yield CounterMetricFamily(
            "process_cpu_seconds",
            "User and system CPU time of the process, in seconds.",
            figures.cpu_seconds(),
        )
        for name, text, number in (
            ("virtual_memory_bytes", "Virtual memory of the process.", virtual),
            ("resident_memory_bytes", "Resident memory of the process.", resident),
            (
                "start_time_seconds",
                "When the process started, in seconds since 1970.",
                figures.started(),
            ),
            ("open_fds", "Open file descriptors.", figures.open_fds()),
            ("max_fds", "File descriptors that the process may open.", figures.fd_limit),
        ):
            yield GaugeMetricFamily(f"process_{name}", text, number)
        for key, name, text in (
            ("collections", "collections", "Collections of the garbage collector, by generation."),
            ("collected", "objects_collected", "Objects that the garbage collector freed, by generation."),
            (
                "uncollectable",
                "objects_uncollectable",
                "Objects that the garbage collector could not free, by generation.",
            ),
        ):
            family = CounterMetricFamily(f"python_gc_{name}", text, labels=["generation"])
            for generation, stats in enumerate(gc.get_stats()):
                family.add_metric([str(generation)], stats[key])
            yield family
