"""
The compiled data plane is used where it is there, of this version and wanted; else one line says why not.
"""

import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from msgnode import __version__
from msgnode.transport.native_module import load

NAME = "native_of_a_test"


class Compiled(ModuleType):
    """
    A module as the compiler makes it.
    """

    __version__ = __version__


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """
    A module that is installed.
    """
    monkeypatch.delenv("MSGNODE_NATIVE", raising=False)
    found = Compiled(NAME)
    monkeypatch.setitem(sys.modules, NAME, found)
    return found


def test_is_used_where_it_is_installed(module: Compiled):
    """
    A module of this version is used.
    """
    assert load(NAME) == (module, "")


def test_is_not_used_where_it_is_not_wanted(module: Compiled, monkeypatch: pytest.MonkeyPatch):
    """
    MSGNODE_NATIVE=0 keeps it out.
    """
    monkeypatch.setenv("MSGNODE_NATIVE", "0")

    assert load(NAME) == (None, "MSGNODE_NATIVE=0")


def test_is_not_used_in_another_version(module: Compiled):
    """
    A module of another version is left alone.
    """
    module.__version__ = "0.0.9"

    found, why = load(NAME)

    assert found is None
    assert why == f"msgnode-native 0.0.9 is not of this version, {__version__}"


def test_need_not_be_there(monkeypatch: pytest.MonkeyPatch):
    """
    Without the module the node says so.
    """
    monkeypatch.delenv("MSGNODE_NATIVE", raising=False)

    assert load("no_such_module") == (None, "msgnode-native is not installed")


def test_has_the_version_of_the_node():
    """
    Both distributions are of one version, or one would never use the other.
    """
    checkout = Path(__file__).parents[2]
    cargo = tomllib.loads((checkout / "native/Cargo.toml").read_text())

    assert cargo["workspace"]["package"]["version"] == __version__
    assert f"msgnode-native == {__version__};" in (checkout / "setup.cfg").read_text()
