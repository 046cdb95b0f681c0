"""
The mining tool: how long a whole run takes, its memory, and three of its questions beside DuckDB and Polars.

Once more it runs under spark-submit with the executor in a process of its own,
to tell the driver's memory, which must not grow with the log, from the rest.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[2]
ENGINES = ("spark", "duckdb", "polars")
NEEDED = ("pyspark", "click", "duckdb", "polars")
QUESTIONS = ("volume", "pairing", "refusals")
DRIVER = "512m"
_EVERY = 0.2  # seconds between two looks at the memory
_KEPT = re.compile(rb"Pause .*->(\d+)M\(")  # of a line of Java's log of its collections


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
    found["submitted"] = _submit(logs, out)
    shutil.rmtree(out)
    for question in QUESTIONS:
        runs: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
        for _ in range(rounds):
            for engine in ENGINES:
                runs[engine].append(_run(["-m", "benchmark.load.mining_engines", engine, question, logs]))
        found[question] = {engine: _median(some) for engine, some in runs.items()}
    return found


def _submit(logs: Path, out: Path) -> dict[str, Any]:
    """
    A run with the executor apart; `kept_mib` is what the driver's heap held after a collection, at the most.
    """
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    home, log = Path(spec.origin).parent, out.with_suffix(".gc")
    conf = ["--conf", "spark.executor.memory=3g", "--conf", "spark.ui.enabled=false"]
    how = ["--driver-memory", DRIVER, "--driver-java-options", f"-Xlog:gc:file={log}", *conf]
    command = [home / "bin/spark-submit", "--master", "local-cluster[1,2,3072]", *how]
    found = _run([*command, TOOLS / "mine.py", logs, "--out", out, "--json"], [], SPARK_HOME=str(home))
    found["kept_mib"] = max(map(int, _KEPT.findall(log.read_bytes())), default=0)
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


def _run(
    command: list[Any], by: "list[Any] | tuple[str]" = (sys.executable,), **environment: str
) -> dict[str, Any]:
    """
    Run it; its wall time, its processor time and the most memory that it and its children had at once.
    """
    paths = {"PYTHONPATH": f"{TOOLS.parent}{os.pathsep}{TOOLS}", "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **paths, **environment}
    whole = [*map(str, by), *map(str, command)]
    begun = time.monotonic()
    peaks: dict[str, int] = {"java": 0, "executor": 0, "python": 0, "all": 0}
    cpu: dict[int, float] = {}
    with tempfile.TemporaryFile() as errors:  # spark-submit says much there
        process = subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=errors, env=environment)
        watching = threading.Thread(target=_watch, args=(process, peaks, cpu))
        watching.start()
        said, _ = process.communicate()
        watching.join()
        if process.returncode:
            errors.seek(0)
            last = errors.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"{whole} ended with {process.returncode}: {last}")
    result = {"seconds": round(time.monotonic() - begun, 2), "cpu": round(sum(cpu.values()), 1)}
    result |= {f"{name}_mib": peak >> 20 for name, peak in peaks.items()}
    lines = said.decode().strip().splitlines()[-1:]
    if lines and lines[0].startswith("{"):
        result["said"] = json.loads(lines[0])
    return result


def _watch(process: "subprocess.Popen[bytes]", peaks: dict[str, int], cpu: dict[int, float]) -> None:
    while process.poll() is None:
        now = {"java": 0, "executor": 0, "python": 0}
        for pid in _family(process.pid):
            try:
                name = _name(pid)
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except (OSError, IndexError):
                continue
            now[name] += pages * os.sysconf("SC_PAGE_SIZE")
            cpu[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for name, size in (*now.items(), ("all", sum(now.values()))):
            peaks[name] = max(peaks[name], size)
        time.sleep(_EVERY)


def _name(pid: int) -> str:
    if Path(f"/proc/{pid}/comm").read_text() != "java\n":
        return "python"
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return "executor" if b"CoarseGrainedExecutorBackend" in command else "java"


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
        apart = found["submitted"]
        memory = f"{apart['java_mib']:,} driver, {apart['executor_mib']:,} executor"
        rows.append(
            f"| {int(lines):,} | a whole run, executor apart | spark-submit | {apart['seconds']:.0f} | "
            f"{apart['cpu']:.0f} | {memory} | | the driver's heap kept {apart['kept_mib']} at most |"
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
