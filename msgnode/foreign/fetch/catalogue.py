"""
The catalogue of an older domain: an entry contains the code, or says where it is, and has a version.

Several entries may have one name, for browsers and for Node.js. A stub for browsers is asked for: those for
Node.js usually contain the package `ws`, whose modules the sandbox does not have.
"""

from base64 import b64decode
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct

from msgnode.foreign.fetch.download import Download
from msgnode.foreign.fetch.stub_code import MAX_DESCRIPTOR_BYTES, StubCode, Unusable

Found = TypeVar("Found")
CONSTRAINTS = {"constraints": {"browser": True}}
MAX_VERSION_BYTES = 100
BESIDE = "/sourcePackage"  # a package below the entry


class SourcePackage(Struct):
    """
    The package of a stub in a catalogue.
    """

    sourceCode: str
    encoding: str = ""


class CatalogueEntry(Struct):
    """
    An entry of a catalogue: the fields that are used. All others are skipped, however many they are.

    Old catalogues have texts of JSON in the place of objects.
    """

    sourcePackage: SourcePackage | str = ""
    sourcePackageURL: str = ""
    configuration: Raw = Raw(b"{}")
    constraints: Raw = Raw(b"{}")
    version: int | float | str | None = None


class Catalogue:
    """
    The catalogue of a domain.
    """

    def __init__(self, domain: str, download: Download, max_code_bytes: int) -> None:
        self.url = f"https://catalogue.{domain}/.well-known/protocolstub/default"
        self._domain = domain
        self._download = download
        # Of base64, or of JSON with escapes.
        self._max_package_bytes = 2 * max_code_bytes + MAX_DESCRIPTOR_BYTES

    async def fetch(self, kept: StubCode | None) -> StubCode:
        """
        The stub; `kept` itself while that is from here and its version has not changed.
        """
        if kept is not None and kept.source == self.url and kept.version and await self._has(kept.version):
            return kept
        most = self._max_package_bytes
        response = await self._download.request("POST", self.url, most, CONSTRAINTS)
        data = response.content if response.status == 200 else await self._download.get(self.url, most)
        entry = self._decoded(data, CatalogueEntry)
        if not entry.sourcePackage:
            data = await self._download.get(self._package_url(entry.sourcePackageURL), most)
            entry.sourcePackage = self._decoded(data, SourcePackage)
        elif isinstance(entry.sourcePackage, str):
            entry.sourcePackage = self._decoded(entry.sourcePackage.encode(), SourcePackage)
        descriptor = {
            "configuration": entry.configuration,
            "constraints": entry.constraints,
            "version": "" if entry.version is None else entry.version,
        }
        code = self._code(entry.sourcePackage)
        return StubCode(self._domain, self.url, code, msgspec.json.encode(descriptor))

    async def _has(self, version: str) -> bool:
        response = await self._download.request("GET", f"{self.url}/version", MAX_VERSION_BYTES)
        found = response.content.decode("utf-8", "replace").strip().strip('"')
        return response.status == 200 and found == version

    def _package_url(self, text: str) -> str:
        if text in ("", BESIDE):
            return f"{self.url}{BESIDE}"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError as why:
            raise self._malformed(str(why)) from None
        is_own = host == self._domain or host.endswith(f".{self._domain}")
        if not is_own or parts.scheme not in ("https", "hyperty-catalogue") or port not in (None, 443):
            raise self._malformed(f"its code is not in this domain, but at {text!r}")
        return f"https://{host}{parts.path}"

    def _code(self, package: SourcePackage) -> bytes:
        code = package.sourceCode
        if package.encoding.lower() != "base64":
            return code.encode()
        try:
            return b64decode(code, validate=True)
        except ValueError as why:
            raise self._malformed(str(why)) from None

    def _decoded(self, data: bytes, type: type[Found]) -> Found:
        try:
            return msgspec.json.decode(data, type=type)
        except (ValueError, RecursionError) as why:
            raise self._malformed(str(why)) from None

    def _malformed(self, why: str) -> Unusable:
        return Unusable(f"the catalogue of {self._domain} is malformed: {why[:200]}")
