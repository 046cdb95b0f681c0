"""
Start an example: a node, what belongs to it, and a web server for its pages, all on this machine.

    start.py chat|thermometer [--port 8000]
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = ("chat", "thermometer")
ANYWHERE = "tcp:0:interface=127.0.0.1"


class Pages(SimpleHTTPRequestHandler):
    """
    The files of this directory, without a line for each request.
    """

    def log_message(self, *what: object) -> None:
        pass


def node(directory: str) -> tuple[subprocess.Popen[str], dict[str, int]]:
    """
    A node that keeps nothing, on free ports; the ports by kind.
    """
    twistd = Path(sys.executable).with_name("twistd")
    command = [str(twistd), "-n", "--pidfile=", "msgnode", "--web", ANYWHERE, "--lines", ANYWHERE]
    command += ["--admin", "none", "--traffic", "none", "--state", "none"]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True)
    ports: dict[str, int] = {}
    said = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        found = re.search(r"(web|line): listening on \S+:(\d+)", line)
        if found:
            ports[found[1]] = int(found[2])
        if len(ports) == 2:
            # What it says from now on is of no interest, but somebody has to take it.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, ports
    sys.exit("".join(said) + "the node did not start")


def server(port: int) -> ThreadingHTTPServer:
    """
    The pages, on this port or any other that is free.
    """
    handler = partial(Pages, directory=str(HERE))
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:
        return ThreadingHTTPServer(("127.0.0.1", 0), handler)


def main() -> None:
    parser = argparse.ArgumentParser(description="Start an example.")
    parser.add_argument("example", choices=EXAMPLES)
    parser.add_argument("--port", type=int, default=8000, help="of the pages (default 8000)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory() as directory, server(options.port) as pages:
        running, ports = node(directory)
        started = [running]
        if options.example == "thermometer":
            device = [sys.executable, str(HERE / "thermometer" / "thermometer.py"), str(ports["line"])]
            started.append(subprocess.Popen(device, text=True))
        asked = f"?node=http://127.0.0.1:{ports['web']}"
        where = f"http://127.0.0.1:{pages.server_address[1]}/{options.example}/"
        print(f"Open {where}{asked}\nCtrl-C ends it.", flush=True)
        try:
            pages.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
