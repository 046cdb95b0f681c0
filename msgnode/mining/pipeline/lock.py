"""
A lock: only one run at a time in an output directory.

It is a lock on the directory itself, which ends with the process, so nothing can be left behind. This is for
local directories; object stores have a lock of their own.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from msgnode.mining.reading.log_files import Unreadable


@contextmanager
def exclusive(directory: str, make: bool) -> Iterator[None]:
    """
    Hold the lock of a directory; Unreadable if another run has it. `make` creates the directory if it is
    missing.
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
    except FileExistsError:  # a file, which cannot be used
        return None
    except OSError as why:
        raise Unreadable(f"{directory}: cannot be made: {why.strerror}") from None
    try:
        return os.open(directory, os.O_RDONLY)
    except OSError:  # if it cannot be used, writing reports the error
        return None


def _hold(held: int, directory: str) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Unreadable(f"another run uses {directory}; wait until it ends, or use another --out") from None
    except OSError:  # a file system without locks
        return
