"""
The protostub's own tests, by Node's test runner; and whether the package has what its source builds.
"""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from msgnode import __version__

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
def test_protostub_passes_its_javascript_tests() -> None:
    """
    The stub does what its tests say, in a world of memory.
    """
    run("node", "--test", *sorted((TOP / "tests" / "stub").glob("*.test.js")))


@needs_node
@needs_npm
def test_fresh_stub_build_is_the_packaged_one(tmp_path: Path) -> None:
    """
    A fresh build is what is in the package, byte for byte.
    """
    run("node", "build.js", tmp_path)

    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {"default.ps.js", "default.mjs", "activate.js", "client.mjs", "client.d.mts"} == set(built)
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


@needs_node
@needs_npm
def test_npm_package_has_the_client_its_types_and_the_version_of_the_node(tmp_path: Path) -> None:
    """
    The npm package is made from the tree: the built module, its types, and the node's version.
    """
    run("node", "package.js", tmp_path)

    (packed,) = tmp_path.glob("*.tgz")
    assert packed.name == f"msgnode-client-{__version__}.tgz"
    with tarfile.open(packed) as archive:
        files = {name.removeprefix("package/") for name in archive.getnames()}
    assert {"package.json", "client.mjs", "client.d.mts", "README.md", "LICENSE"} == files
