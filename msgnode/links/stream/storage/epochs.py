"""
The identity of a node's memory: a random instance that the state directory keeps, and a count of its starts.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from msgnode.links.wire.stream_header import INSTANCE_BYTES, Epoch

NAME = "node-instance"
_EPOCHS_A_START = 1 << 32
_MAX_STARTS = 1 << 24  # for message ids, 40 bits a start (exchange/envelopes.py), to fit into 64 bits
_STARTS_SINCE = 1_735_689_600  # 2025-01-01, seconds since 1970
_START_SECONDS = 60


class Instance(Struct):
    """
    The content of the file: the node's name, its instance, and the number of its last start, which rises.
    """

    node: str
    instance: bytes
    starts: int


def in_memory(
    random_bytes: Callable[[int], bytes] = os.urandom, wall: Callable[[], float] = time.time
) -> Callable[[], Epoch]:
    """
    The epochs of a node without a state directory: another instance at each start, and a start above those of
    earlier minutes.
    """
    return _epochs(random_bytes(INSTANCE_BYTES), max(1, _start_at(wall)))


def load(
    directory: Path,
    node: str,
    rename: bool = False,
    incomplete: bool = False,
    random_bytes: Callable[[int], bytes] = os.urandom,
    wall: Callable[[], float] = time.time,
) -> Callable[[], Epoch]:
    """
    The epochs of a start with this state directory. ValueError in words if it is another node's.

    `incomplete`: part of the spool is lost, so the node has forgotten, and says so by another instance.

    The number of the start is at least the minutes since 2025 by `wall`: so it rises also where the state
    directory was restored from a backup, and its own count is an earlier one.
    """
    path = directory / NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Instance)
    except FileNotFoundError:
        found = Instance(node, random_bytes(INSTANCE_BYTES), 0)
    if found.node != node and not rename:
        raise ValueError(
            f"the state in {directory} is that of {found.node}; to keep it for {node}, use --rename"
        )
    if incomplete:
        found.instance = random_bytes(INSTANCE_BYTES)
    found.node = node
    found.starts = max(found.starts + 1, _start_at(wall))
    fresh = path.with_name(NAME + ".new")
    with open(fresh, "wb") as file:
        file.write(msgspec.json.encode(found))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return _epochs(found.instance, found.starts)


def start_of(epoch: Epoch) -> int:
    """
    The number of the start that an epoch is of.
    """
    return epoch[1] // _EPOCHS_A_START


def _start_at(wall: Callable[[], float]) -> int:
    return min(int((wall() - _STARTS_SINCE) / _START_SECONDS), _MAX_STARTS // 2)


def _epochs(instance: bytes, start: int) -> Callable[[], Epoch]:
    counter = start * _EPOCHS_A_START

    def next_epoch() -> Epoch:
        nonlocal counter
        counter += 1
        return instance, counter

    return next_epoch
