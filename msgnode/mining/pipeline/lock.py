"""
One run at a time in one output.

The lock is the directory's own and ends with the process, however that ends,
so nothing is left behind.  Only a directory of this machine can be locked.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from msgnode.mining.pipeline.log_files import Unreadable


@contextmanager
def alone(directory: str, make: bool) -> Iterator[None]:
    """
    No other run works in this directory meanwhile; Unreadable where one does.  `make` it, if it is not there.
    """
    held = _opened(directory, make) if directory else None
    try:
        if held is not None:
            _hold(held, directory)
        yield
    finally:
        if held is not None:
            os.close(held)


def _opened(directory: str, make: bool) -> int | None:
    try:
        if make:
            os.makedirs(directory, exist_ok=True)
        return os.open(directory, os.O_RDONLY)
    except OSError:  # not there, or whoever writes there will say what is wrong
        return None


def _hold(held: int, directory: str) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Unreadable(
            f"another run is at work in {directory}; wait until it is done, or use another --out"
        ) from None
    except OSError:  # a file system without locks
        return
