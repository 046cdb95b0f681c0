"""
Start an example: its nodes, what belongs to them, and a web server for its pages, all on this machine.

    start.py chat|thermometer|records|history|federation [--port 8000]
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXAMPLES = ("chat", "thermometer", "records", "history", "federation")
ANYWHERE = "tcp:0:interface=127.0.0.1"
END_SECONDS = 15  # for a process to end by itself


class Pages(SimpleHTTPRequestHandler):
    """
    The files of this directory, without a line for each request.
    """

    def log_message(self, *what: object) -> None:
        pass


def running(ending: ExitStack, command: list[str], **options: Any) -> "subprocess.Popen[str]":
    """
    A process that is ended at the end.
    """
    process = subprocess.Popen(command, text=True, **options)
    ending.callback(end, process)
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def node(ending: ExitStack, directory: str, *options: str, kinds: tuple[str, ...]) -> dict[str, int]:
    """
    Start a node that listens on free ports of these kinds; the ports by kind.
    """
    twistd = Path(sys.executable).with_name("twistd")
    command = [str(twistd), "-n", "--pidfile=", "msgnode", "--traffic", "none", *options]
    process = running(ending, command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    ports: dict[str, int] = {}
    said = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        found = re.search(r"(web|line|admin): listening on \S+:(\d+)", line)
        if found:
            ports[found[1]] = int(found[2])
        if set(ports) >= set(kinds):
            # What it says from now on is of no interest, but somebody has to take it.
            threading.Thread(target=deque, args=[process.stdout, 0], daemon=True).start()
            return ports
    sys.exit("".join(said) + "the node did not start")


def alone(ending: ExitStack, directory: str, *options: str) -> dict[str, int]:
    """
    Start one node that keeps nothing; the ports by kind.
    """
    listening = ("--web", ANYWHERE, "--lines", ANYWHERE, "--admin", "none", "--state", "none")
    return node(ending, directory, *listening, *options, kinds=("web", "line"))


def with_records(ending: ExitStack, directory: str) -> dict[str, int]:
    """
    Start a node that knows the definition of a record, and a thermometer with the class generated from it.
    """
    definitions = HERE / "records" / "definitions"
    settings = f'[records]\ndir = {json.dumps(str(definitions))}\npublic = ["HOME"]\n'
    Path(directory, "msgnode.toml").write_text(settings)
    ports = alone(ending, directory, "--config", "msgnode.toml")
    generate = [str(Path(sys.executable).with_name("msgnode")), "records", "generate", "--language", "python"]
    out = ["--out", str(Path(directory, "thermometer")), str(definitions)]
    subprocess.run([*generate, *out], check=True, stdout=subprocess.DEVNULL)
    device = [sys.executable, str(HERE / "records" / "device.py"), f"tcp://127.0.0.1:{ports['line']}"]
    where = {**os.environ, "PYTHONPATH": directory}
    process = running(ending, device, env=where, stdout=subprocess.PIPE)
    assert process.stdout is not None
    if not process.stdout.readline():
        sys.exit("the thermometer did not start")
    return ports


def with_history(ending: ExitStack, directory: str) -> dict[str, int]:
    """
    Start a node that keeps boards, and a board whose notes move.
    """
    listening = ("--web", ANYWHERE, "--lines", ANYWHERE, "--admin", "none", "--state", "state")
    Path(directory, "msgnode.toml").write_text('[objects]\nkeep = ["comm://localhost/boards/*"]\n')
    ports = node(ending, directory, *listening, "--config", "msgnode.toml", kinds=("web", "line"))
    running(ending, [sys.executable, str(HERE / "history" / "board.py"), str(ports["line"])])
    return ports


def server(port: int, handler: type[SimpleHTTPRequestHandler]) -> ThreadingHTTPServer:
    """
    The pages, on this port or any other that is free.
    """
    pages = partial(handler, directory=str(HERE))
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), pages)
    except OSError:
        return ThreadingHTTPServer(("127.0.0.1", 0), pages)


def begin(example: str, ending: ExitStack, directory: str) -> tuple[type[Pages], str]:
    """
    Start what belongs to an example; the handler of its pages, and what stands behind their address.
    """
    if example == "federation":
        sys.path.insert(0, str(HERE / "federation"))
        from domains import Domains, handler_of

        domains = Domains(Path(directory))
        domains.start(lambda where, *options: node(ending, where, *options, kinds=("web", "admin")))
        return handler_of(domains, Pages), ""
    starts = {"records": with_records, "history": with_history}
    ports = starts.get(example, alone)(ending, directory)
    if example == "thermometer":
        device = [sys.executable, str(HERE / "thermometer" / "thermometer.py"), str(ports["line"])]
        running(ending, device)
    return Pages, f"?node=http://127.0.0.1:{ports['web']}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Start an example.")
    parser.add_argument("example", choices=EXAMPLES)
    parser.add_argument("--port", type=int, default=8000, help="of the pages (default 8000)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory() as directory, ExitStack() as ending:
        try:
            handler, asked = begin(options.example, ending, directory)
            with server(options.port, handler) as pages:
                where = f"http://127.0.0.1:{pages.server_address[1]}/{options.example}/"
                print(f"Open {where}{asked}\nCtrl-C ends it.", flush=True)
                pages.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
