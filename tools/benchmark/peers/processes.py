"""
What the system knows of a process: its children, CPU time and memory.
"""

import os
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds


def family(pid: int) -> list[int]:
    """
    The process and everything below it that is alive.
    """
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid] + [member for child in children for member in family(int(child))]


def cpu_seconds(pids: list[int]) -> float:
    """
    CPU time the processes have used so far, user and system.
    """
    return sum(_cpu_seconds(pid) for pid in pids)


def rss(pids: list[int]) -> int:
    """
    Resident memory of the processes, in bytes.
    """
    return sum(_rss(pid) for pid in pids)


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * TICK


def _rss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
