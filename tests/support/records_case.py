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
CLIENT = TOP / "msgnode/stub/client.mjs"
PRETTIER = TOP / "tools/stub/node_modules/.bin/prettier"
JAVA_FORMAT = TOP / "tools/stub/node_modules/.bin/google-java-format"
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


class Program:
    """
    A compiled program, which reads lines with an id and a body, and returns the bodies that it writes.
    """

    def __init__(self, place: Path, *command: str) -> None:
        self._place = place
        self._command = command

    def __call__(self, lines):
        return _told(run(*self._command, cwd=self._place, text=_text(lines)))

    def relay(self, port: int, me: str, to: str) -> "subprocess.Popen[str]":
        """
        The program as a client of the node at this port, which reads the record of each message that it gets,
        and sends it on. It prints a line when its session is open.
        """
        command = [*self._command, str(port), me, to]
        return subprocess.Popen(command, cwd=self._place, stdout=subprocess.PIPE, text=True)


# Each of these generates and compiles, and returns such a program, or a function like it.


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
        + "const [port, me, to] = process.argv.slice(2);\n"
        + f"if (port) {{\n  const {{ Client }} = await import({json.dumps(str(CLIENT))});\n"
        + "  const client = new Client(`ws://127.0.0.1:${port}/ws`, { runtime: me });\n"
        + "  for (const type of requests) {\n"
        + "    client.handle(type, (message) => void client.publish(to, type, message.record));\n  }\n"
        + '  await client.connect();\n  console.log("ready");\n'
        + '} else for (const line of readFileSync(0, "utf8").split("\\n").filter(Boolean)) {\n'
        + "  const type = known.get(line.slice(0, 36)), value = type.fromBody(JSON.parse(line.slice(37)));\n"
        + "  if (!type.is(value)) throw new Error(line);\n"
        + "  console.log(JSON.stringify(type.toBody(value)));\n}\n"
    )
    return Program(place, "node", "driver.mjs")


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
  static final Map<String, List<CRecord.Slot<?>>> known = new HashMap<>();
  static String told(String id, String body) {
    CRecord record = CRecord.parse(body);
    List<CRecord.Slot<?>> slots = known.get(id);
    CRecord.check(record, slots, false);
    for (CRecord.Slot<?> slot : slots) copy(slot, record);
    return record.toJson();
  }
  static void relay(int port, String me, String to) throws Exception {
    try (java.net.Socket socket = new java.net.Socket("127.0.0.1", port)) {
      Scanner in = new Scanner(socket.getInputStream(), "UTF-8").useDelimiter("\\n");
      java.io.PrintStream out = new java.io.PrintStream(socket.getOutputStream(), true, "UTF-8");
      String from = "\\"from\\":\\"" + me + "\\",\\"to\\":\\"";
      out.print("{\\"id\\":1,\\"type\\":\\"open\\"," + from + "mn:/session\\"}\\n");
      in.next();
      System.out.println("ready");
      while (in.hasNext()) {
        String line = in.next();
        int named = line.indexOf("\\"record\\":\\"") + 10, at = line.indexOf("\\"body\\":") + 7;
        String id = line.substring(named, named + 36);
        String body = told(id, line.substring(at, line.length() - 1));
        String head = "{\\"id\\":2,\\"type\\":\\"update\\"," + from + to;
        out.print(head + "\\",\\"record\\":\\"" + id + "\\",\\"body\\":" + body + "}\\n");
        out.flush();
      }
    }
  }
  public static void main(String[] words) throws Exception {
"""
        + known
        + """
    if (words.length > 0) {
      relay(Integer.parseInt(words[0]), words[1], words[2]);
      return;
    }
    java.io.PrintStream out = new java.io.PrintStream(System.out, false, "UTF-8");
    Scanner in = new Scanner(System.in, "UTF-8").useDelimiter("\\n");
    while (in.hasNext()) {
      String line = in.next();
      out.println(told(line.substring(0, 36), line.substring(37)));
    }
    out.flush();
  }
}
"""
    )
    sources = sorted(map(str, place.rglob("*.java")))
    run("javac", "-Xlint:all", "-Werror", "-encoding", "US-ASCII", "-d", "out", *sources, cwd=place)
    return Program(place, "java", "-cp", "out", "Driver")


def by_c(definitions: Definitions, place: Path):
    written(place, c.generate(definitions))
    plan = Plan(definitions, modules=c.RESERVED_MODULES)
    cases = "".join(
        f"""
  if (strncmp(id, "{record.id}", 36) == 0) {{
    struct {c.prefix(module, record)} value;
    result = {c.prefix(module, record)}_read(&value, body, strlen(body), memory, sizeof memory);
    if (value.bad_slot != NULL)
      fprintf(stderr, "%s: ", value.bad_slot);
    if (result == RECORDS_OK)
      result = {c.prefix(module, record)}_write(&value, out, sizeof out, &length);
  }}
"""
        for module in plan.modules
        for record in module.records
    )
    (place / "driver.c").write_text(
        "#define _POSIX_C_SOURCE 200809L\n#include <arpa/inet.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        + "#include <string.h>\n#include <unistd.h>\n"
        + "".join(f'#include "{module.name}.h"\n' for module in plan.modules)
        + '#include "records_runtime.h"\n'
        + _C_DRIVER.replace("CASES", cases)
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
    return Program(place, "./driver")


_C_DRIVER = r"""
static char line[1000000], memory[1000000], out[1000000];

static enum records_result tell(const char *id, const char *body) {
  enum records_result result = RECORDS_BAD_JSON;
  size_t length;
CASES
  if (result != RECORDS_OK)
    fprintf(stderr, "%s: %s\n", records_result_text(result), body);
  return result;
}

static int relay(int port, const char *me, const char *to) {
  struct sockaddr_in where = {0};
  int node = socket(AF_INET, SOCK_STREAM, 0);
  where.sin_family = AF_INET;
  where.sin_port = htons((uint16_t)port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (node < 0 || connect(node, (struct sockaddr *)&where, sizeof where) != 0)
    return 1;
  FILE *in = fdopen(node, "r");
  dprintf(node, "{\"id\":1,\"type\":\"open\",\"from\":\"%s\",\"to\":\"mn:/session\"}\n", me);
  if (in == NULL || fgets(line, sizeof line, in) == NULL)
    return 1;
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, in) != NULL) {
    const char *id = strstr(line, "\"record\":\"") + 10;
    const char *body = strstr(line, "\"body\":") + 7;
    line[strlen(line) - 2] = 0;
    if (tell(id, body) != RECORDS_OK)
      return 1;
    dprintf(node,
            "{\"id\":2,\"type\":\"update\",\"from\":\"%s\",\"to\":\"%s\",\"record\":\"%.36s\",\"body\":%s}\n",
            me, to, id, out);
  }
  fclose(in);
  return 0;
}

int main(int count, char **words) {
  if (count > 1)
    return relay(atoi(words[1]), words[2], words[3]);
  while (fgets(line, sizeof line, stdin) != NULL) {
    if (tell(line, line + 37) != RECORDS_OK)
      return 1;
    puts(out);
  }
  return 0;
}
"""


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
