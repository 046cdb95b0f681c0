"""
The compiled data plane, where it is there: the module msgnode_native, a distribution of its own.

A node without it runs as well, in Python alone, and says so in one line.
"""

import os
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from msgnode import __version__

MODULE = "msgnode_native"
SWITCH = "MSGNODE_NATIVE"  # the variable
OFF = "0"  # not to be used
NEST = "nested"  # its poller is not to replace that of Twisted's reactor


class NativeModule(NamedTuple):
    """
    The module, or None and why there is none.
    """

    module: ModuleType | None
    why: str = ""


def load(name: str = MODULE) -> NativeModule:
    """
    The module of this version.
    """
    if os.environ.get(SWITCH) == OFF:
        return NativeModule(None, f"{SWITCH}={OFF}")
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return NativeModule(None, "msgnode-native is not installed")
    except ImportError as why:  # built for another machine
        return NativeModule(None, f"msgnode-native cannot be loaded: {why}")
    version = getattr(module, "__version__", "unknown")
    if version != __version__:
        return NativeModule(None, f"msgnode-native {version} is not of this version, {__version__}")
    return NativeModule(module)
