"""
How tools/run builds the compiled data plane: once for each state of native/; where it cannot, a line says so.

The cargo and the Python that it runs are scripts, which note that they ran.
"""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "native.sh"
CARGO = "#!/bin/sh\necho 'cargo 1.90.0 (abc 2025-01-01)'\n"
BUILDS = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.11.7' && exit\necho built >>'{0}/ran'\n"
ALONE = "The data plane runs in Python alone: "


class Checkout:
    """
    A directory with native/, a virtual environment, and a PATH with this cargo ("": none).
    """

    def __init__(self, home: Path, cargo: str, python: str = BUILDS) -> None:
        self._home = home
        for name in ("native", "venv/bin", "bin"):
            (home / name).mkdir(parents=True)
        (home / "native" / "lib.rs").write_text("fn main() {}\n")
        for name, text in (("venv/bin/python", python.format(home)), ("bin/cargo", cargo)):
            if text:
                (home / name).write_text(text)
                (home / name).chmod(0o755)

    def prepare(self, **environment: str) -> str:
        """
        What it prints.
        """
        script = f"set -euo pipefail; top=$PWD venv=$PWD/venv; . {SCRIPT}; prepare_native"
        path = f"{self._home}/bin:/usr/bin:/bin"
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=self._home,
            env={**environment, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stderr == ""
        return ran.stdout

    @property
    def builds(self) -> int:
        ran = self._home / "ran"
        return len(ran.read_text().splitlines()) if ran.exists() else 0

    def change(self) -> None:
        (self._home / "native" / "lib.rs").write_text("fn main() { }\n")


@pytest.mark.skipif(
    any(os.access(f"{where}/cargo", os.X_OK) for where in ("/usr/bin", "/bin")),
    reason="cargo is always there",
)
def test_without_cargo(tmp_path: Path) -> None:
    """
    Where there is no cargo, one line says so.
    """
    assert Checkout(tmp_path, "").prepare() == ALONE + "there is no cargo here.\n"


@pytest.mark.parametrize(
    ("cargo", "why"),
    [
        ("#!/bin/sh\necho 'cargo 1.63.0 (abc 2022-01-01)'\n", "cargo is 1.63.0, and 1.85 is needed"),
        (
            "#!/bin/sh\necho 'no default toolchain' >&2\nexit 1\n",
            "the cargo here does not work: try cargo --version",
        ),
    ],
)
def test_with_a_cargo_that_will_not_do(tmp_path: Path, cargo: str, why: str) -> None:
    """
    A cargo that is too old, or rustup's without a toolchain, is not tried.
    """
    checkout = Checkout(tmp_path, cargo)

    assert checkout.prepare() == f"{ALONE}{why}.\n"
    assert checkout.builds == 0


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "Could not resolve host: index.crates.io",
            "what its build needs cannot be fetched; is there a network?",
        ),
        ("error: linker cc not found", "it could not be built, see "),
    ],
)
def test_a_build_that_fails(tmp_path: Path, said: str, why: str) -> None:
    """
    Offline, or where it does not build, the node is run without it, and it is tried again the next time.
    """
    python = BUILDS + f"echo '{said}'; exit 1\n"
    checkout = Checkout(tmp_path, CARGO, python)

    for attempts in (1, 2):
        assert checkout.prepare().splitlines()[-1].startswith(ALONE + why)
        assert checkout.builds == attempts


def test_is_built_when_it_has_changed(tmp_path: Path) -> None:
    """
    It is built once, and again after a change of native/; not with MSGNODE_NATIVE=0.
    """
    checkout = Checkout(tmp_path, CARGO)

    assert checkout.prepare(MSGNODE_NATIVE="0") == ""
    assert checkout.builds == 0
    assert checkout.prepare().endswith(" done\n")
    assert checkout.prepare() == ""
    assert checkout.builds == 1
    checkout.change()
    checkout.prepare()
    assert checkout.builds == 2
