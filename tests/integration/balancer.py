"""
A balancer without stickiness: each TCP connection goes to the next node.
"""

import socket
import threading
from contextlib import suppress


class Balancer:
    """
    A TCP proxy on a port of its own, which takes the nodes in turn. A node that refuses connections is passed
    over.
    """

    def __init__(self, *ports: int) -> None:
        self._ports = ports
        self._turn = 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listening.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        for _ in self._ports:
            self._turn += 1
            with suppress(OSError):
                node = socket.create_connection(("127.0.0.1", self._ports[self._turn % len(self._ports)]), 5)
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
