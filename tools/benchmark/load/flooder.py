"""
One client that sends as fast as it can: to the node, or to a socket that throws away.
"""

import json
import socket
import sys
import threading

from benchmark.load.frames import TEXT, compact, masked, message

AT_ONCE = 64  # messages in one write
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def main() -> None:
    job = json.loads(sys.argv[1])
    names = [f"runtime://localhost/{job['run']}-flood-{n}" for n in (0, 1)]
    if job["kind"] == "node":
        own, second = (_opened(job["port"], name) for name in names)
        threading.Thread(target=_throw_away, args=(second,), daemon=True).start()
        threading.Thread(target=_throw_away, args=(own,), daemon=True).start()
    else:
        own = _discarded()
    letters = masked(message(1, names[0], f"{names[1]}/x", 100), TEXT) * AT_ONCE
    print("flooding", flush=True)
    while True:
        own.sendall(letters)


def _opened(port: int, name: str) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port))
    peer.sendall(UPGRADE)
    peer.recv(4096)
    peer.sendall(masked(compact({"id": 1, "type": "open", "from": name, "to": "mn:/session"}), TEXT))
    peer.recv(4096)
    return peer


def _throw_away(peer: socket.socket) -> None:
    while peer.recv(1 << 16):
        pass


def _discarded() -> socket.socket:
    """
    A socket whose other end reads and forgets, in a process of its own as the node is one.
    """
    import os

    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    parent = os.getpid()
    if os.fork() == 0:
        peer, _ = listening.accept()
        while peer.recv(1 << 14) and os.getppid() == parent:
            pass
        os._exit(0)
    listening.close()
    return socket.create_connection(("127.0.0.1", port))


if __name__ == "__main__":
    main()
