"""
The protostub's own tests, by Node's test runner; and whether the package has what its source builds.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
BUILD = TOP / "tools" / "stub"
STUB = TOP / "msgnode" / "stub"

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs nodejs")
needs_npm = pytest.mark.skipif(
    not (BUILD / "node_modules").exists(), reason="needs npm install in tools/stub"
)


def run(*command: str | Path, cwd: Path = BUILD) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_node
def test_units() -> None:
    """
    The stub does what its tests say, in a world of memory.
    """
    run("node", "--test", *sorted((TOP / "tests" / "stub").glob("*.test.js")))


@needs_node
@needs_npm
def test_build(tmp_path: Path) -> None:
    """
    A fresh build is what is in the package, byte for byte.
    """
    run("node", "build.js", tmp_path)

    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {"default.ps.js", "default.mjs", "activate.js"} == set(built)
    for name, data in built.items():
        assert (STUB / name).read_bytes() == data, f"{name} is not built from its source: npm run build"


@needs_node
@needs_npm
def test_types_that_are_declared_fit_a_page_in_typescript() -> None:
    """
    The types that are declared fit a page in TypeScript.
    """
    run(BUILD / "node_modules" / ".bin" / "tsc", *_options())


def _options() -> list[str]:
    script: str = json.loads((BUILD / "package.json").read_text())["scripts"]["types"]
    return script.split()[1:]
