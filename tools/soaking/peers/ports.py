"""
Ports for processes that are started later, and perhaps killed and started again.
"""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

_chance = random.SystemRandom()
_given: set[int] = set()
# A lock on a byte is a claim on the port of that number, until this process ends.
_claims = (Path(tempfile.gettempdir()) / f"msgnode-ports-{os.getuid()}").open("ab")


def free_port() -> int:
    """
    A port that is given once on this machine, to this process, and that no connection takes by itself: it is
    still free after a kill.
    """
    range_ = Path("/proc/sys/net/ipv4/ip_local_port_range")
    below = int(range_.read_text().split()[0]) if range_.exists() else 32_768
    while True:
        port = _chance.randrange(10_000, max(below, 11_000))
        with socket.socket() as probe, suppress(OSError):
            if port not in _given:
                fcntl.lockf(_claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                _given.add(port)
                probe.bind(("127.0.0.1", port))
                return port
