"""
A balancer without stickiness: each TCP connection goes to the next node.
"""

import socket
import threading
from contextlib import suppress


class Balancer:
    """
    A TCP proxy on a port of its own, which takes the nodes in turn. A node that refuses connections is passed
    over. WebSockets go to the node at port `websockets`, if it is given.
    """

    def __init__(self, *ports: int, websockets: int | None = None) -> None:
        self._ports = ports
        self._websockets = websockets
        self._turn = 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listening.getsockname()[1]
        self.websockets = 0  # that were made
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        is_websocket = False
        if self._websockets is not None:
            with suppress(OSError):
                is_websocket = b"transport=websocket" in client.recv(500, socket.MSG_PEEK)
        self.websockets += is_websocket
        for _ in self._ports:
            self._turn += 1
            port = self._websockets if is_websocket else self._ports[self._turn % len(self._ports)]
            with suppress(OSError):
                node = socket.create_connection(("127.0.0.1", port), 5)
                node.settimeout(None)
                break
        else:
            client.close()
            return
        for ends in ((client, node), (node, client)):
            threading.Thread(target=_carry, args=ends, daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
