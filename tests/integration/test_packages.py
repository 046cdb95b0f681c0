"""
The packages: what is built from a checkout, and a node that runs from it in a fresh environment.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.examples import TOP

SECONDS = 600  # pip may have to fetch everything
IGNORED = shutil.ignore_patterns(
    ".git",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "node_modules",
    "target",
    "build",
    "dist",
    "*.egg-info",
    ".bench",
)
UNITS = ["msgnode.service", "msgnode.socket", "msgnode@.service"]
needs_build = pytest.mark.skipif(
    find_spec("build") is None, reason="the package build is missing: the extra [test] has it"
)


def run(*command: object, cwd: Path | None = None, **environment: str) -> str:
    known = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=known | environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """
    A directory with the sdist, the wheel that is built from it, and that of msgnode-report.
    """
    with tempfile.TemporaryDirectory(prefix="packages-") as name:
        source, out = Path(name, "source"), Path(name, "dist")
        shutil.copytree(TOP, source, ignore=IGNORED)
        run(sys.executable, "-m", "build", "--outdir", out, source)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", out, source / "msgnode_report")
        yield out


def wheel(built: Path, name: str = "msgnode") -> Path:
    return next(built.glob(f"{name}-*.whl"))


@needs_build
def test_the_wheel_has_what_a_node_needs_and_no_more(built: Path) -> None:
    """
    Units, configuration, rules, documents and completions; but no chart library, and no tests.
    """
    names = zipfile.ZipFile(wheel(built)).namelist()

    data = {name.partition(".data/data/share/")[2] for name in names}
    for wanted in (
        *(f"msgnode/etc/{unit}" for unit in UNITS),
        "msgnode/etc/msgnode.toml",
        "msgnode/etc/policies/groups.json",
        "msgnode/constraints.txt",
        "doc/msgnode/upgrades.md",
        "bash-completion/completions/msgnode",
        "zsh/site-functions/_msgnode",
        "fish/vendor_completions.d/msgnode.fish",
    ):
        assert wanted in data, wanted
    assert "twisted/plugins/msgnode_tap.py" in names or any("twisted/plugins/" in name for name in names)
    for asset in ("templates/base.html", "assets/htmx.min.js", "assets/NOTICE"):
        assert f"msgnode/admin/pages/{asset}" in names, asset
    assert not [name for name in names if "echarts" in name or name.startswith(("tests/", "tools/"))]


@needs_build
def test_the_charts_are_a_distribution_of_their_own(built: Path) -> None:
    """
    The extra `mining` requires it in the version of the node, and a node does not.
    """
    version = run(sys.executable, TOP / "msgnode/cli/__main__.py", "--version").split()[-1]

    metadata = next(name for name in zipfile.ZipFile(wheel(built)).namelist() if name.endswith("/METADATA"))
    text = zipfile.ZipFile(wheel(built)).read(metadata).decode()
    needed = re.findall(
        r"^Requires-Dist: msgnode-report==(\S+?);? extra == \"(\w+)\"", text.replace("; ", ";? "), re.M
    )
    assert "msgnode_report/echarts.min.js" in zipfile.ZipFile(wheel(built, "msgnode_report")).namelist()
    assert wheel(built, "msgnode_report").name.split("-")[1] == version
    assert (version, "mining") in [(found.rstrip(";?"), extra) for found, extra in needed], needed
    assert not re.search(r"^Requires-Dist: msgnode-report[^;]*$", text, re.M)


@needs_build
def test_the_source_distribution_has_all_that_a_packager_needs(built: Path) -> None:
    """
    Documents, units, tests, tools and the sources of the compiled plane.
    """
    with tarfile.open(next(built.glob("msgnode-*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    for wanted in (
        "docs/operations.md",
        "etc/msgnode.service",
        "tests/conftest.py",
        "tools/test",
        "native/Cargo.toml",
        "constraints.txt",
        "Containerfile",
        "msgnode_report/echarts.min.js",
    ):
        assert wanted in names, wanted
    assert not [name for name in names if "__pycache__" in name or "node_modules" in name]


@needs_build
def test_a_node_runs_from_the_wheel_in_a_fresh_environment(built: Path, tmp_path: Path) -> None:
    """
    Installed with the versions of constraints.txt: `msgnode init` finds its files, `twistd msgnode` starts
    with what it wrote, and a message is delivered.
    """
    venv, etc = tmp_path / "venv", tmp_path / "etc"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "-c", TOP / "constraints.txt", wheel(built))

    run(venv / "bin/msgnode", "init", etc, "--systemd", tmp_path / "system", cwd=tmp_path)
    unit = (tmp_path / "system/msgnode.service").read_text()
    config = (etc / "msgnode.toml").read_text().replace("tcp:9", "tcp:29")
    (etc / "msgnode.toml").write_text(config)
    command = re.search(r"^ExecStart=(.*)$", unit, re.M)
    assert command is not None and str(venv) in command[1]
    node = subprocess.Popen(
        shlex.split(command[1]),
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "XDG_DATA_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert node.stdout is not None
        end = time.monotonic() + 60
        for line in node.stdout:
            if "line: listening" in line or time.monotonic() > end:
                break
        answer = run(
            venv / "bin/msgnode", "rtt", "--count", 3, "--url", "ws://127.0.0.1:29090/ws", cwd=tmp_path
        )
        assert "3 round trips" in answer
    finally:
        node.terminate()
        node.wait(60)


@cache
def why_no_container() -> str:
    """
    Why no image can be built here; "" if it can.
    """
    program = shutil.which("podman") or shutil.which("docker")
    if program is None:
        return "neither podman nor docker is installed"
    base = re.search(r"^ARG BASE=(\S+)", (TOP / "Containerfile").read_text(), re.M)
    assert base is not None
    done = subprocess.run(
        [program, "pull", base[1]], capture_output=True, text=True, timeout=300, check=False
    )
    return (
        "" if done.returncode == 0 else f"{base[1]} cannot be pulled: {done.stderr.strip().splitlines()[-1:]}"
    )


def test_the_image_runs_a_node_that_is_healthy() -> None:
    """
    It is built from the checkout, runs as a user of its own, and its health check passes.
    """
    if why := why_no_container():
        pytest.skip(why)
    program = shutil.which("podman") or shutil.which("docker")
    run(
        program,
        "build",
        *(["--format", "docker"] if "podman" in str(program) else []),
        "-t",
        "msgnode-test",
        TOP,
    )
    name = f"msgnode-test-{os.getpid()}"
    run(program, "run", "--rm", "-d", "--name", name, "msgnode-test")
    try:
        health = re.search(r"HEALTHCHECK.*?CMD (\[.*?\])", (TOP / "Containerfile").read_text(), re.S)
        assert health is not None
        command = shlex.split(health[1].strip("[]").replace(", ", " "))
        end = time.monotonic() + 60
        while subprocess.run([str(program), "exec", name, *command], check=False, timeout=60).returncode:
            assert time.monotonic() < end, run(program, "logs", name)
            time.sleep(0.5)
        assert run(program, "exec", name, "id", "-u").strip() == "10001"
    finally:
        run(program, "stop", name)


def test_the_recipe_of_the_image_copies_what_is_there() -> None:
    """
    Each file that it copies exists and is sent to the builder; the node is not root, has a volume and a
    health check.
    """
    recipe = (TOP / "Containerfile").read_text().replace("\\\n", " ")
    sent = (TOP / ".dockerignore").read_text().splitlines()

    copied = [word for line in re.findall(r"^COPY (?!--)(.*)$", recipe, re.M) for word in line.split()[:-1]]
    last = recipe[recipe.rindex("\nFROM ") :]
    assert copied and all((TOP / name).exists() and f"!{name}" in sent for name in copied)
    assert re.search(r"^USER msgnode$", last, re.M) and "VOLUME /var/lib/msgnode" in last
    assert "/live" in last[last.index("HEALTHCHECK") :]
