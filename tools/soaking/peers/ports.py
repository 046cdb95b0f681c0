"""
Ports for processes that are started later, and perhaps killed and started again.
"""

import errno
import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import BinaryIO

MAX_TRIES = 10_000
_chance = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """
    A port that is free now, and still after a kill: no other call on this machine gets it while this process
    runs, and no connection takes it by itself. OSError if none is found.

    Without a file for claims, only this process does not give it again; and if the system has nearly all
    ports for connections, one may take it.
    """
    range_ = Path("/proc/sys/net/ipv4/ip_local_port_range")
    below = int(range_.read_text().split()[0]) if range_.exists() else 32_768
    for _ in range(MAX_TRIES):
        port = _chance.randrange(10_000, max(below, 11_000))
        if port not in _given and _is_claimed(port):
            _given.add(port)
            if _is_free(port):
                return port
    raise OSError(errno.EADDRINUSE, f"no free port in {MAX_TRIES:,} tries")


@cache
def _claims() -> BinaryIO | None:
    """
    A lock on a byte of this file is a claim on the port of that number, until this process ends.
    """
    try:
        return (Path(tempfile.gettempdir()) / f"msgnode-ports-{os.getuid()}").open("ab")
    except OSError:
        return None


def _is_claimed(port: int) -> bool:
    """
    Is the port claimed for this process now? Also if there are no claims here.
    """
    claims = _claims()
    if claims is None:
        return True
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as why:
            if why.errno != errno.EADDRINUSE:
                raise
            return False
    return True
