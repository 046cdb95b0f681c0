"""
Remedies: what an operator, or the client's author, would change so that a message is not refused.
"""

from msgnode.sessions.history.refusals import Refusal

REMEDIES = {
    "not-your-address": "the sender may use its runtimeURL, what is below it, and addresses bound to it; "
    "session.from_check decides what happens otherwise",
    "reserved-address": "only the node itself may use this address",
    "policy": "the rule named here decided; 'msgnode policy explain' shows how",
    "rate": "the sender is faster than limits.session_rate_messages, limits.ip_rate_messages, a rule or an "
    "operator's limit permit",
    "no-session": "the client sends before it has opened a session",
    "token": "the client's token is missing, not valid, or has ended; it needs a new one",
    "too-long": "the message is longer than a limit; limits.message_bytes is that of the node",
    "malformed": "the client's message is not as docs/protocol.md describes it",
    "no-route": "no session is bound to the address; 'msgnode admin address' shows which there are",
    "no-room": "the disk, or the recipient's share of it, is full",
    "overflow": "the recipient reads too slowly or stays away; session.queue_messages and "
    "session.queue_bytes "
    "bound its queue, session.max_memory_bytes that of all",
    "stale": "the recipient did not come back in time; the message's ttl or its type decides how "
    "long it waits",
    "ended": "the recipient's session ended; session.expiry_seconds says how long it may be away",
    "limit": "a limit of the configuration is reached; msgnode_over_limit_total names it",
    "disk": "the disk takes no data now; 'msgnode admin status' says why",
    "back-end": "a back end did not answer; 'msgnode admin status' names it",
    "pool-empty": "all addresses of the pool are leased; 'msgnode admin pools' shows to whom",
    "banned": "an operator banned the client; 'msgnode admin bans' shows by which ban",
    "record": "the body does not fit the definition of its record",
    "not-handled": "the node offers no such service",
    "failed": "the node failed over this; its log says why",
    "no-path": "no link leads to the other domain now; 'msgnode link ls' shows them",
}


def remedy(found: Refusal) -> str:
    """
    The remedy, "" if none is known.
    """
    return REMEDIES.get(found.reason, "")
