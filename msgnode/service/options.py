"""
The command line of `twistd msgnode`.  An option takes precedence over the same key of the configuration file.
"""

import sys
from collections.abc import Sequence
from typing import Any

from twisted.python.usage import Options as BaseOptions
from twisted.python.usage import UsageError

from msgnode import __version__
from msgnode.config.loader import load
from msgnode.config.schema import Config, ConfigError
from msgnode.service.lifecycle import exit_on_config_error
from msgnode.service.process.log_format import check_log_options

RENAMED = {"--line": "--lines"}  # the old and the new name of options


class Options(BaseOptions):
    """
    The options of `twistd msgnode`; the configuration file has the others.
    """

    optParameters = [
        ["config", "c", None, "Configuration file (TOML); etc/msgnode.toml explains every key."],
        ["domain", None, None, "The domain this node serves. [default: localhost]"],
        [
            "admin",
            None,
            None,
            "Endpoint for operators: /metrics, /live, /policy. [default: tcp:9092:interface=127.0.0.1]",
        ],
        ["traffic", None, None, "Directory of the traffic log, or none for no log."],
        [
            "state",
            None,
            None,
            "Directory of sessions, addresses and undelivered messages, or none to keep them in memory.",
        ],
        ["policy", None, None, "File, directory or URL of the policies."],
        ["records", None, None, "Directory of the definitions of records."],
        [
            "sync",
            None,
            None,
            "normal: acknowledged data survives a crash of the node; full: power loss, too.",
        ],
        ["registry", None, None, "The domain registry: embedded, none, or its URL. [default: embedded]"],
        [
            "global-registry",
            None,
            None,
            "The global registry: embedded, none, or its URL. [default: embedded]",
        ],
        [
            "cluster",
            None,
            None,
            "NATS servers by which the nodes of this domain reach each other: nats://HOST:PORT[,...].",
        ],
        ["log-format", None, None, "text, or json: the log on standard output, a JSON object a line."],
        ["log-level", None, None, "debug, info, warn, error or critical: the least level in the log."],
    ]

    optFlags = [
        ["rename", None, "Keep the state directory of a node that had another name, or another domain."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, Any] = {}

    def opt_version(self) -> None:
        """
        Print the version and exit.
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
                if option in RENAMED:  # getopt would accept it as an abbreviation of the new name
                    raise ConfigError(f"{option}: is now called {RENAMED[option]}")
        with exit_on_config_error():
            try:
                super().parseOptions(options)
            except UsageError as why:  # twistd would print every option before the error
                raise ConfigError(f"{why}; 'twistd msgnode --help' lists the options") from None

    def parseArgs(self, *arguments: str) -> None:
        if arguments:
            raise UsageError(f"expected options only, found {arguments[0]!r}")

    def postOptions(self) -> None:
        for name in ("domain", "traffic", "state", "sync"):
            if self[name] is not None:
                self.given[name] = self[name]
        if self["admin"] is not None:
            self.given["admin"] = {"listen": self["admin"]}
        if self["policy"] is not None:
            self.given["policy"] = {"source": self["policy"]}
        if self["records"] is not None:
            self.given["records"] = {"dir": self["records"]}
        if self["cluster"] is not None:
            self.given["cluster"] = {"url": [url for url in self["cluster"].split(",") if url]}
        for name in ("registry", "global-registry"):
            if self[name] is not None:
                self.given[name.replace("-", "_")] = {"url": self[name]}
        with exit_on_config_error():
            check_log_options(self["log-format"], self["log-level"])
            self.loaded = self.read()

    def read(self) -> Config:
        """
        Returns the configuration as it is in the file now, overridden by the options.
        """
        return load(self["config"], self.given)
