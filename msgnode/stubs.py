"""
The protostubs the node gives to browsers: its own, and those an operator has put beside it.

A runtime asks for `default.ps.js` and its descriptor `default.ps.json`; one
of the older kind asks a catalogue for version, cguid and a descriptor that
has the code in it.
"""

import json
import re
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgnode.config.schema import Config

OURS = ("default.ps.js", "default.mjs", "default.d.mts")
CATALOGUE = "activate.js"
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]*\.ps\.(js|json)")


class Stubs:
    """
    Every file by its name below `/.well-known/protocolstub`; `public` is where the asker reaches the node.
    """

    def __init__(self, config: Config, now: Callable[[], float] = time.time) -> None:
        self._config = config
        self._now = now
        self._public = config.public_url
        # Runtimes keep a descriptor until its version rises.
        self._version = int(now())
        package = files("msgnode") / "stub"
        self._ours = {name: (package / name).read_bytes() for name in (*OURS, CATALOGUE)}

    def read(self, name: str, public: str) -> bytes | None:
        """
        What to send, or None if there is nothing of this name.
        """
        if _FILE.fullmatch(name) and (found := self._operators(name)) is not None:
            return found
        if name in OURS:
            return self._ours[name]
        if name == "default.ps.json":
            return _text(self._descriptor(public))
        return self._catalogued(name, public)

    def _operators(self, name: str) -> bytes | None:
        """
        A file of the operator's directory; it wins over our own.
        """
        if not self._config.stubs:
            return None
        try:
            return Path(self._config.stubs, name).read_bytes()
        except OSError:
            return None

    def _descriptor(self, public: str) -> dict[str, Any]:
        message = self._config.limits.message
        configuration: dict[str, Any] = {
            "url": f"{public}/ws",
            "maxBuffer": 2 * message,
            "maxMessage": message,
        }
        if self._config.session.message_token == "require":
            configuration["token"] = True
        return {
            "language": "javascript",
            "description": f"Protostub for {self._config.domain}",
            "signature": "",
            "configuration": configuration,
            "constraints": {"browser": True},
            "interworking": False,
            "objectName": "default",
        }

    # -- the catalogue of older runtimes ---------------------------------------

    def _catalogued(self, name: str, public: str) -> bytes | None:
        if name == "default":
            return _text(self._entry(public))
        if name == "default/version":
            return str(self.version).encode()
        if name == "default/cguid":
            return self._cguid.encode()
        if name == "default/sourcePackage":
            return _text(self._package())
        return None

    @property
    def version(self) -> int:
        """
        A number that rises with every start of the node, and when its public URL changes.
        """
        if self._public != self._config.public_url:
            self._public = self._config.public_url
            self._version = max(self._version + 1, int(self._now()))
        return self._version

    @property
    def _cguid(self) -> str:
        return f"msgnode-protostub-{self._config.domain}"

    def _entry(self, public: str) -> dict[str, Any]:
        return {
            **self._descriptor(public),
            "cguid": self._cguid,
            "type": "ProtoStubs",
            "version": self.version,
            "messageSchemas": "",
            "hypertyType": [],
            "dataObjects": [],
            "idpProxy": False,
            "mutualAuthentication": False,
            "accessControlPolicy": "",
            "sourcePackageURL": "/sourcePackage",
            "sourcePackage": self._package(),
        }

    def _package(self) -> dict[str, str]:
        code = self._ours[CATALOGUE].decode()
        return {"sourceCodeClassname": "activate", "sourceCode": code, "encoding": "UTF-8", "signature": ""}


def _text(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
