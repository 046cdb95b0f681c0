"""
The newest entries of the audit log.
"""

from typing import Any, ClassVar

import msgspec

from msgnode.admin.reads.inspector import checked_limit
from msgnode.storage.audit_log import AuditLog


class AuditQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """
    Entries since a time in seconds since 1970, by the name of an operator, of an action.
    """

    since: float = 0
    who: str = ""
    action: str = ""
    limit: int = 200


class AuditList(msgspec.Struct):
    """
    The newest entries, the newest first: of the last 1,000 lines, two for each action. The files in
    `<state>/audit` have all.
    """

    rows_in: ClassVar[str] = "entries"

    entries: list[dict[str, Any]]


def list_audit(audit: AuditLog, query: AuditQuery) -> AuditList:
    """
    The entries. Raises Rejected.
    """
    limit = checked_limit(query.limit)
    found = [
        entry
        for entry in reversed(audit.recent)
        if entry["time"] >= query.since
        and query.who in ("", entry.get("who"))
        and query.action in ("", entry.get("action"))
    ]
    return AuditList(found[:limit])
