"""
A cable between a client and the node, which can be cut.
"""

import socket
import threading
from contextlib import suppress


class Cable:
    """
    A TCP proxy on a port of its own.

    `cut`: every connection breaks, and none is made.  `hang`: nothing passes, and
    nobody is told.  `join` makes it whole.  `refuses`: a request whose head holds
    this is cut off, as by a proxy that does not like it.
    """

    def __init__(self, port: int) -> None:
        self._node = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.refuses = b""
        self._whole = threading.Event()
        self._whole.set()
        self._is_cut = False
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        self._break()

    def hang(self) -> None:
        self._whole.clear()

    def join(self) -> None:
        """
        What hung is lost.
        """
        self._break()
        self._is_cut = False
        self._whole.set()

    def move(self, port: int) -> None:
        """
        The node is somewhere else from now on.
        """
        self._node = ("127.0.0.1", port)
        self.join()

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def _break(self) -> None:
        for one in list(self._sockets):
            _shut(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._is_cut:
                _shut(client)
                client.close()
                continue
            try:
                node = socket.create_connection(self._node)
            except OSError:
                client.close()
                continue
            self._sockets |= {client, node}
            for ends in ((client, node), (node, client)):
                threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._whole.wait()
                if self.refuses and self.refuses in data:
                    break
                target.sendall(data)
        except OSError:
            pass
        _shut(source)
        _shut(target)
        self._sockets -= {source, target}


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
