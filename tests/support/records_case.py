"""
Generated code compiled and run: each language reads bodies and writes them again.
"""

import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from msgnode.records.definition import INTEGERS, Definitions
from msgnode.records.generate import c, java, python, typescript
from msgnode.records.generate.plan import Plan
from tests.support.examples import TOP

TSC = TOP / "tools/stub/node_modules/.bin/tsc"
PRETTIER = TOP / "tools/stub/node_modules/.bin/prettier"
_SECONDS = 120
_OPTIONS = {"strict": True, "target": "es2022", "module": "nodenext", "moduleResolution": "nodenext"}
_OPTIONS |= {"noUnusedLocals": True, "exactOptionalPropertyTypes": True, "outDir": "out", "types": []}


def needs(*commands):
    """
    Skip a test if a command is missing, except in continuous integration.
    """
    missing = [str(each) for each in commands if shutil.which(each) is None]
    return pytest.mark.skipif(
        bool(missing) and os.environ.get("CI") != "true", reason=f"{', '.join(missing)} is missing"
    )


def run(*words, cwd, text=None):
    """
    The output of a command, which must succeed without a warning.
    """
    made = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        input=text,
        capture_output=True,
        timeout=_SECONDS,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert not made.stderr, made.stderr
    return made.stdout


def written(directory: Path, files):
    """
    Writes generated files below a directory.
    """
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return directory


# Each of these generates and compiles, and returns a function of lines with an id and a body, which
# returns the bodies that the language writes.


def by_python(definitions: Definitions, place: Path):
    written(place / "generated_records", python.generate(definitions))
    plan = Plan(definitions, python._RESERVED_CLASSES, python._RESERVED_MODULES)
    package = {}
    for name in ("__init__", "records_runtime", *(module.name for module in plan.modules)):
        full = "generated_records" if name == "__init__" else f"generated_records.{name}"
        spec = importlib.util.spec_from_file_location(full, place / f"generated_records/{name}.py")
        assert spec is not None and spec.loader is not None
        package[full] = (spec, importlib.util.module_from_spec(spec))
    sys.modules.update({full: module for full, (_, module) in package.items()})
    try:
        for spec, module in package.values():
            spec.loader.exec_module(module)
    finally:
        for full in package:
            del sys.modules[full]
    classes = {
        record.id: getattr(package[f"generated_records.{module.name}"][1], plan.class_name(record))
        for module in plan.modules
        for record in module.records
    }
    return lambda lines: [
        json.dumps(classes[id_].from_body(json.loads(body)).to_body()) for id_, body in lines
    ]


def by_typescript(definitions: Definitions, place: Path):
    files = typescript.generate(definitions)
    written(place, files)
    (place / "package.json").write_text('{"type": "module"}')
    options = json.dumps({"compilerOptions": _OPTIONS, "include": ["*.ts"]})
    (place / "tsconfig.json").write_text(options)
    run(TSC, "-p", ".", cwd=place)
    imports = "".join(
        f'import * as m{n} from "./out/{name[:-3]}.js";\n' for n, name in enumerate(files) if name[0] != "r"
    )
    modules = ", ".join(f"m{n}" for n, name in enumerate(files) if name[0] != "r")
    (place / "driver.mjs").write_text(
        imports
        + 'import { RecordType } from "./out/records_runtime.js";\nimport { readFileSync } from "node:fs";\n'
        + f"const types = [{modules}].flatMap(Object.values).filter((each) => each instanceof RecordType);\n"
        + "const answers = new Set(types.map((each) => each.answer));\n"
        + "const requests = types.filter((each) => !answers.has(each));\n"
        + "const known = new Map(requests.map((each) => [each.id, each]));\n"
        + 'for (const line of readFileSync(0, "utf8").split("\\n").filter(Boolean)) {\n'
        + "  const type = known.get(line.slice(0, 36)), value = type.fromBody(JSON.parse(line.slice(37)));\n"
        + "  if (!type.is(value)) throw new Error(line);\n"
        + "  console.log(JSON.stringify(type.toBody(value)));\n}\n"
    )
    return lambda lines: _told(run("node", "driver.mjs", cwd=place, text=_text(lines)))


def by_java(definitions: Definitions, place: Path):
    written(place, java.generate(definitions))
    plan = Plan(definitions, modules=java._KEYWORDS)
    known = "".join(
        f'known.put("{record.id}", records.{module.name}.{java.class_name(record)}.SLOTS);\n'
        for module in plan.modules
        for record in module.records
    )
    (place / "Driver.java").write_text(
        """
import java.util.*;
import records.CRecord;
public class Driver {
  static <T> void copy(CRecord.Slot<T> slot, CRecord record) {
    if (slot.isIn(record)) {
      T value = slot.get(record, null);
      slot.remove(record);
      slot.set(record, value);
    }
  }
  public static void main(String[] words) throws Exception {
    Map<String, List<CRecord.Slot<?>>> known = new HashMap<>();
"""
        + known
        + """
    java.io.PrintStream out = new java.io.PrintStream(System.out, false, "UTF-8");
    Scanner in = new Scanner(System.in, "UTF-8").useDelimiter("\\n");
    while (in.hasNext()) {
      String line = in.next();
      CRecord record = CRecord.parse(line.substring(37));
      List<CRecord.Slot<?>> slots = known.get(line.substring(0, 36));
      CRecord.check(record, slots, false);
      for (CRecord.Slot<?> slot : slots) copy(slot, record);
      out.println(record.toJson());
    }
    out.flush();
  }
}
"""
    )
    sources = sorted(map(str, place.rglob("*.java")))
    run("javac", "-Xlint:all", "-Werror", "-encoding", "US-ASCII", "-d", "out", *sources, cwd=place)
    return lambda lines: _told(run("java", "-cp", "out", "Driver", cwd=place, text=_text(lines)))


def by_c(definitions: Definitions, place: Path):
    written(place, c.generate(definitions))
    plan = Plan(definitions, modules=["records_runtime"])
    cases = "".join(
        f"""
    if (strncmp(line, "{record.id}", 36) == 0) {{
      struct {c.prefix(module, record)} value;
      result = {c.prefix(module, record)}_read(&value, body, strlen(body), memory, sizeof memory);
      if (result == RECORDS_OK)
        result = {c.prefix(module, record)}_write(&value, out, sizeof out, &length);
    }}
"""
        for module in plan.modules
        for record in module.records
    )
    (place / "driver.c").write_text(
        "".join(f'#include "{module.name}.h"\n' for module in plan.modules)
        + '#include "records_runtime.h"\nstatic char line[1000000], memory[1000000], out[1000000];\n'
        + "int main(void) {\n  while (fgets(line, sizeof line, stdin) != NULL) {\n"
        + "    enum records_result result = RECORDS_BAD_JSON;\n"
        + "    char *body = line + 37;\n    size_t length;\n"
        + cases
        + "    if (result != RECORDS_OK) {\n"
        + '      fprintf(stderr, "%s: %s", records_result_text(result), line);\n      return 1;\n    }\n'
        + "    puts(out);\n  }\n  return 0;\n}\n"
    )
    warnings = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
    run(
        "gcc",
        *warnings,
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-o",
        "driver",
        "driver.c",
        "-lm",
        cwd=place,
    )
    return lambda lines: _told(run("./driver", cwd=place, text=_text(lines)))


def _text(lines):
    return "".join(f"{id_}\t{body}\n" for id_, body in lines)


def _told(output):
    return output.split("\n")[:-1]


def canonical(definitions, record, body):
    """
    A body with one form of each value: dates as instants, floats as 32 bits, UUIDs in lower case.
    """
    slots = {slot.name: slot for slot in record.slots}
    return {
        name: _each(definitions, slots[name], value) if name in slots and value is not None else value
        for name, value in body.items()
    }


def _each(definitions, slot, value):
    if slot.form == "[]":
        return [_one(definitions, slot, each) for each in value]
    if slot.form:
        return {key: _one(definitions, slot, each) for key, each in value.items()}
    return _one(definitions, slot, value)


def _one(definitions, slot, value):
    match slot.type:
        case "RECORD":
            return canonical(definitions, definitions.nested(slot), value)
        case "DATE":
            return datetime.fromisoformat(value.upper())
        case "FLOAT":
            return struct.pack("f", value + 0.0)  # JSON.stringify writes -0 as 0
        case "DOUBLE":
            return float(value)
        case "UUID":
            return value.lower()
    return int(value) if slot.type in INTEGERS else value
