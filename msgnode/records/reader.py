"""
Reading definitions from files and directories, JSON and XML.
"""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files as resources
from pathlib import Path

from msgnode.records import json_scanner, xml_reader
from msgnode.records.consistency import inconsistencies
from msgnode.records.definition import Definitions
from msgnode.records.parser import Parser
from msgnode.records.problems import DefinitionsRefused, Place, Problem, SyntaxRefused

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FILES = 1000  # in a directory
SYSTEM_FILE = "system.records.json"
SUFFIXES = (".records.json", ".records.xml")
_NAMES = ("record.json", "record.xml")  # the names of the nyssr.net system


def read(path: Path) -> Definitions:
    """
    The definitions of a file, or of all files below a directory whose names end with SUFFIXES.

    DefinitionsRefused with all problems; OSError if a file cannot be read.
    """
    return read_texts((str(each), _bytes(each)) for each in files(path))


@cache
def system_records() -> Definitions:
    """
    The definitions of the node's own notifications, in namespace SYSTEM.
    """
    return read_texts([(SYSTEM_FILE, (resources("msgnode.records") / "assets" / SYSTEM_FILE).read_bytes())])


def files(path: Path) -> list[Path]:
    """
    The file itself, or the files of definitions below a directory, by name.
    """
    if not path.is_dir():
        return [path]
    found = sorted(
        each
        for each in path.rglob("*")
        if each.name.endswith(SUFFIXES) or each.name in _NAMES
        if each.is_file()
    )
    if not found or len(found) > MAX_FILES:
        expected = (
            f"expected 1 to {MAX_FILES} files named *{SUFFIXES[0]} or *{SUFFIXES[1]}, found {len(found)}"
        )
        raise DefinitionsRefused([Problem(Place(str(path), 1, 1), expected)])
    return found


def read_texts(named: Iterable[tuple[str, bytes]]) -> Definitions:
    """
    The definitions of files with these names and contents.
    """
    parser = Parser()
    names = []
    for name, data in named:
        names.append(Path(name).name)
        try:
            parser.parse(_scanned(name, data), name)
        except SyntaxRefused as why:
            parser.problems.append(Problem(Place(name, why.line, why.column), str(why)))
    problems = parser.problems + inconsistencies(parser.records)
    if problems:
        raise DefinitionsRefused(problems)
    return Definitions((each.record for each in parser.records), ", ".join(names))


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def _scanned(name: str, data: bytes) -> json_scanner.Node:
    if len(data) > MAX_FILE_BYTES:
        raise SyntaxRefused(f"the file has more than {MAX_FILE_BYTES} bytes", 1, 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        line = data.count(b"\n", 0, why.start) + 1
        column = why.start - data.rfind(b"\n", 0, why.start)
        raise SyntaxRefused("the file is not UTF-8", line, column) from None
    is_xml = name.endswith(".xml") or (not name.endswith(".json") and text.lstrip().startswith("<"))
    return xml_reader.scan(text) if is_xml else json_scanner.scan(text)
