"""
Generated Python classes and TypeScript modules, as a program has them.
"""

import importlib
import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

from msgnode.records.generate import python, typescript
from msgnode.records.generate.plan import camel
from msgnode.records.reader import read_texts
from tests.support.examples import TOP
from tests.support.records_case import run, written

TYPES = ("BOOLEAN", "BYTE", "SHORT", "INTEGER", "LONG", "FLOAT", "DOUBLE", "STRING", "UUID", "BYTES", "DATE")
TYPES += ("URL", "ID", "ADDRESS", "NODE_ADDRESS", "TARGET_ADDRESS", "MESSAGE", "OBJECT", "ENUM", "RECORD")
POSITION = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a11"


def _everything() -> bytes:
    """
    The definition of a record with a slot of each type, and an array and a map of it.
    """
    slots = [
        {
            "key": 3 * number + place + 1,
            "name": f"{name}{suffix}",
            "type": f"{name}{form}",
            "direction": "BOTH",
            **({"values": ["ON", "OFF"]} if name == "ENUM" else {}),
            **({"record": POSITION} if name == "RECORD" else {}),
        }
        for number, name in enumerate(TYPES)
        for place, (suffix, form) in enumerate([("", ""), ("_LIST", "[]"), ("_MAP", "{}")])
    ]
    record = {"id": "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a99", "name": "EVERYTHING", "slots": slots}
    return json.dumps({"records": [record]}).encode()


# A record whose answers have other slots, two whose answers have the same, and one without slots of answers.
FILES = [TOP / "tests/records" / f"{name}.records.json" for name in ("thermometer", "seed")]
DEFINITIONS = read_texts(
    [*((path.name, path.read_bytes()) for path in FILES), ("everything.records.json", _everything())]
)
TSC = TOP / "tools/stub/node_modules/.bin/tsc"
_OPTIONS = {"strict": True, "target": "es2022", "module": "nodenext", "outDir": "out", "types": []}
_numbers = count(1)


def python_classes(place: Path) -> dict[str, Any]:
    """
    The generated classes, by the names of their records.
    """
    package = f"generated_{next(_numbers)}"
    files = python.generate(DEFINITIONS)
    written(place / package, files)
    sys.path.insert(0, str(place))
    try:
        modules = [importlib.import_module(f"{package}.{Path(name).stem}") for name in files]
    finally:
        sys.path.remove(str(place))
    names = {record.name: camel(record.name) for record in DEFINITIONS.records}
    return {
        name: getattr(module, class_)
        for module in modules
        for name, class_ in names.items()
        if class_ in vars(module)
    }


def check_types(place: Path, program: Path) -> None:
    """
    Let tsc look at a program with the generated modules at a place, and with the client.
    """
    written(place, {program.name: program.read_text()})
    client = {"msgnode-client": [str(TOP / "msgnode/stub/client.d.mts")]}
    strict = {"noEmit": True, "noUnusedLocals": True, "exactOptionalPropertyTypes": True}
    options = {**_OPTIONS, **strict, "lib": ["es2022", "dom"], "paths": client}
    (place / "program.json").write_text(json.dumps({"compilerOptions": options, "files": [program.name]}))
    run(TSC, "-p", "program.json", cwd=place)


def typescript_modules(place: Path) -> Path:
    """
    A module that exports all generated records, compiled by tsc; the others lie beside it.
    """
    files = typescript.generate(DEFINITIONS)
    written(place, files)
    (place / "package.json").write_text('{"type": "module"}')
    (place / "tsconfig.json").write_text(json.dumps({"compilerOptions": _OPTIONS, "include": ["*.ts"]}))
    names = [name.removesuffix(".ts") for name in files if name != "records_runtime.ts"]
    (place / "records.ts").write_text("".join(f'export * from "./{name}.js";\n' for name in names))
    run(TSC, "-p", ".", cwd=place)
    return place / "out/records.js"
