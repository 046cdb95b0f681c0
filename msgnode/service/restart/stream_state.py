"""
The state of streams at the start: whose it is, its epochs, and what the spool has.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgnode.config.schema import Config, ConfigError
from msgnode.links.stream.common import StreamLimits
from msgnode.links.stream.storage import epochs
from msgnode.links.stream.storage.spool_store import SpoolStreamStore, is_stream
from msgnode.links.stream.storage.store import StoredPeer, UnreadableState
from msgnode.links.wire.node_name import NodeName, parse
from msgnode.links.wire.stream_header import Epoch
from msgnode.storage.spool import Spool


def name_of(config: Config) -> str:
    try:
        return str(parse(str(NodeName(config.domain, config.node))))
    except ValueError as why:
        raise ConfigError(f"node: {why}") from None


def epochs_of(config: Config, name: str, spool: Spool | None, rename: bool) -> Callable[[], Epoch]:
    if spool is None:
        return epochs.in_memory()
    try:
        return epochs.load(Path(config.state), name, rename, spool.incomplete)
    except ValueError as why:
        raise ConfigError(f"state: {why}") from None
    except OSError as why:
        raise ConfigError(f"state: cannot write in {config.state}: {why.strerror}") from why


def stream_limits(config: Config) -> StreamLimits:
    federation = config.federation
    return StreamLimits(
        queue_messages=federation.queue_messages,
        queue_bytes=federation.queue_bytes,
        spool_bytes=federation.spool_bytes,
        message_bytes=config.limits.message_bytes,
        max_wait_seconds=federation.max_wait_seconds,
    )


class Recovering(Protocol):
    """
    The part that has the streams of before a restart.
    """

    def recover(self, found: Mapping[int, Any]) -> None: ...


def stored_streams(store: SpoolStreamStore, found: Mapping[int, Any]) -> list[StoredPeer]:
    """
    The streams that are in the spool. ConfigError if they are of a newer version.
    """
    try:
        return list(store.recover(found))
    except UnreadableState as why:
        raise ConfigError(f"state: {why}") from why


def without_streams(found: Mapping[int, Any], streams: Recovering | None) -> dict[int, Any]:
    """
    The records of sessions alone; `streams` takes its own.
    """
    if streams is not None:
        streams.recover({sid: records for sid, records in found.items() if is_stream(sid)})
    return {sid: records for sid, records in found.items() if not is_stream(sid)}
