"""
The command line of `twistd msgnode`.

What it does not say comes from the configuration file, and an option that both name is its own.
"""

import sys
from collections.abc import Sequence
from typing import Any

from twisted.python.usage import Options as BaseOptions

from msgnode import __version__
from msgnode.config.loader import load
from msgnode.config.schema import Config, ConfigError
from msgnode.service.lifecycle import exit_on_config_error

RENAMED = {"--line": "--lines"}  # what options were called before, and what they are called now


class Options(BaseOptions):
    """
    The options of `twistd msgnode`; what they do not say comes from the file.
    """

    optParameters = [
        ["config", "c", None, "Configuration file (TOML); etc/msgnode.toml explains every key."],
        ["domain", None, None, "The domain this node serves. [default: localhost]"],
        [
            "admin",
            None,
            None,
            "Endpoint of /metrics and /live in full. [default: tcp:9092:interface=127.0.0.1]",
        ],
        ["traffic", None, None, "Directory of the traffic log, or none."],
        ["state", None, None, "Directory of sessions, addresses and what waits, or none."],
        ["policy", None, None, "File or directory of the policies."],
        ["sync", None, None, "normal, or full: what was promised survives power loss too."],
        ["registry", None, None, "The domain registry: embedded, none, or its URL. [default: embedded]"],
        [
            "global-registry",
            None,
            None,
            "The global registry: embedded, none, or its URL. [default: embedded]",
        ],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, Any] = {}

    def opt_version(self) -> None:
        """
        Print the version and leave.
        """
        print(f"msgnode {__version__}")
        sys.exit(0)

    def opt_web(self, endpoint: str) -> None:
        """
        Endpoint for WebSocket and HTTP; may be repeated. [default: tcp:9090:interface=127.0.0.1]
        """
        self.given.setdefault("web", []).append(endpoint)

    def opt_lines(self, endpoint: str) -> None:
        """
        Endpoint for TCP lines; may be repeated. [default: tcp:9091:interface=127.0.0.1]
        """
        self.given.setdefault("lines", []).append(endpoint)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        with exit_on_config_error():
            for option in (given.partition("=")[0] for given in options or ()):
                if option in RENAMED:  # which getopt would take for the new one, shortened
                    raise ConfigError(f"{option}: is now called {RENAMED[option]}")
        super().parseOptions(options)

    def postOptions(self) -> None:
        for name in ("domain", "traffic", "state", "sync"):
            if self[name] is not None:
                self.given[name] = self[name]
        if self["admin"] is not None:
            self.given["admin"] = {"listen": self["admin"]}
        if self["policy"] is not None:
            self.given["policy"] = {"source": self["policy"]}
        for name in ("registry", "global-registry"):
            if self[name] is not None:
                self.given[name.replace("-", "_")] = {"url": self[name]}
        with exit_on_config_error():  # a UsageError would print every option first
            self.loaded = self.read()

    def read(self) -> Config:
        """
        The configuration as it is in the file now, with the options laid over it.
        """
        return load(self["config"], self.given)
