"""
The mining tool: how long a whole run takes, its memory, and two of its questions beside DuckDB and Polars.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent.parent
ENGINES = ("spark", "duckdb", "polars")
NEEDED = ("pyspark", "click", "duckdb", "polars")
QUESTIONS = ("volume", "pairing")
_EVERY = 0.2  # seconds between two looks at the memory


def measure(sizes: list[int], rounds: int = 3) -> dict[str, Any]:
    """
    For each number of lines: a whole run, and the medians of the questions by engine, one after the other.
    """
    results: dict[str, Any] = {}
    for lines in sizes:
        directory = Path(tempfile.mkdtemp(prefix="mining-"))
        try:
            results[str(lines)] = _measure(directory, lines, rounds)
        finally:
            shutil.rmtree(directory)
    return results


def _measure(directory: Path, lines: int, rounds: int) -> dict[str, Any]:
    logs = directory / "logs"
    _run([TOOLS / "make_traffic.py", logs, "--lines", str(lines), "--plain"])
    _mend(logs)
    size = sum(path.stat().st_size for path in logs.glob("*.jsonl"))
    found: dict[str, Any] = {"bytes": size}
    out = directory / "out"
    found["whole"] = _run([TOOLS / "mine.py", logs, "--out", out, "--json"])
    found["whole"]["written"] = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    shutil.rmtree(out)
    for question in QUESTIONS:
        runs: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
        for _ in range(rounds):
            for engine in ENGINES:
                runs[engine].append(_run(["-m", "benchmark.engines", engine, question, logs]))
        found[question] = {engine: _median(some) for engine, some in runs.items()}
    return found


def _mend(logs: Path) -> None:
    """
    Leave out the lines that are none: Polars reads no file that has one.
    """
    first = min(logs.glob("traffic-mn1-*.jsonl"))
    lines = first.read_text().splitlines(keepends=True)
    first.write_text("".join(line for line in lines if line.startswith('{"v":1') and line.endswith("}\n")))


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    ordered = sorted(runs, key=lambda run: run["said"]["seconds"])
    return ordered[len(ordered) // 2]


def _run(command: list[Any]) -> dict[str, Any]:
    """
    Run it; its wall time, its processor time and the most memory that it and its children had at once.
    """
    environment = {**os.environ, "PYTHONPATH": f"{TOOLS.parent}{os.pathsep}{TOOLS}"}
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, *map(str, command)], stdout=subprocess.PIPE, env=environment)
    peaks: dict[str, int] = {"java": 0, "python": 0, "all": 0}
    cpu: dict[int, float] = {}
    watching = threading.Thread(target=_watch, args=(process, peaks, cpu))
    watching.start()
    said, _ = process.communicate()
    watching.join()
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    result = {"seconds": round(time.monotonic() - begun, 2), "cpu": round(sum(cpu.values()), 1)}
    result |= {f"{name}_mib": peak >> 20 for name, peak in peaks.items()}
    last = said.decode().strip().splitlines()[-1:]
    if last and last[0].startswith("{"):
        result["said"] = json.loads(last[0])
    return result


def _watch(process: "subprocess.Popen[bytes]", peaks: dict[str, int], cpu: dict[int, float]) -> None:
    while process.poll() is None:
        now = {"java": 0, "python": 0}
        for pid in _family(process.pid):
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except (OSError, IndexError):
                continue
            now["java" if name == "java" else "python"] += pages * os.sysconf("SC_PAGE_SIZE")
            cpu[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for name, size in (*now.items(), ("all", sum(now.values()))):
            peaks[name] = max(peaks[name], size)
        time.sleep(_EVERY)


def _family(pid: int) -> list[int]:
    """
    A process and all below it.
    """
    found = [pid]
    for parent in found:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def text(results: dict[str, Any]) -> str:
    """
    The results as Markdown.
    """
    rows = ["| lines | question | engine | s | CPU s | peak MiB | ours / theirs | answer |", "|---" * 8 + "|"]
    for lines, found in results.items():
        whole = found["whole"]
        memory = f"{whole['all_mib']:,} ({whole['java_mib']:,} Java)"
        written = f"{whole['written'] / 2**20:,.0f} MiB written"
        rows.append(
            f"| {int(lines):,} ({found['bytes'] / 2**30:.2f} GiB) | a whole run | tools/mine.py | "
            f"{whole['seconds']:.0f} | {whole['cpu']:.0f} | {memory} | | {written} |"
        )
        for question in QUESTIONS:
            ours = found[question]["spark"]["said"]["seconds"]
            for engine, run in found[question].items():
                seconds = run["said"]["seconds"]
                rows.append(
                    f"| {int(lines):,} | {question} | {engine} | {seconds:.1f} | {run['cpu']:.0f} | "
                    f"{run['all_mib']:,} | {ours / seconds:.1f} | {run['said']['answer']} |"
                )
    return "\n".join(rows) + "\n"
