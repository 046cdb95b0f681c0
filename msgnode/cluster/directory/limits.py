"""
Limits and counts of the directory.
"""

import msgspec


class DirectoryLimits(msgspec.Struct, frozen=True):
    """
    The bounds of the directory. During a snapshot an address counts once more.

    `lease_seconds` is how long the addresses of a silent member stay; `log_bytes` bounds the deltas that are
    kept for members that lag behind.
    """

    addresses_per_member: int = 2_000_000
    addresses: int = 8_000_000
    table_bytes: int = 2 * 1024 * 1024 * 1024
    members: int = 64
    log_bytes: int = 4 * 1024 * 1024
    lease_seconds: float = 3600.0
    questions: int = 1000
    waiters: int = 10_000


class DirectoryCounts(msgspec.Struct):
    """
    The counts of the directory since the node started.

    `malformed` are payloads that were dropped, `refused` addresses beyond a bound, `gaps` repairs of missing
    statements, `unsettled` changes that some member had not after 0.5 s, `unanswered` questions that some
    member did not answer in time.
    """

    malformed: int = 0
    refused: int = 0
    gaps: int = 0
    deltas_sent: int = 0
    pieces_sent: int = 0
    snapshots_sent: int = 0
    snapshots_received: int = 0
    unsettled: int = 0
    questions: int = 0
    unanswered: int = 0
