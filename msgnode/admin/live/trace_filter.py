"""
Trace filters: which messages a trace shows.
"""

from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
from msgspec import Struct

from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session

KEYS = ("session", "user", "peer", "address", "id")
MAX_FILTER_CHARS = 1000


class TraceFilter(Struct, frozen=True, omit_defaults=True):
    """
    A filter of messages. What is set must all be true of a message.

    `session` is a runtimeURL, `user` a verified identity, `peer` an IP address or a network: of the sender or
    of a recipient. `address` is an address of `from` or `to`, or one above it at a `/`. `id` is the
    message's.
    """

    session: str = ""
    user: str = ""
    peer: str = ""
    address: str = ""
    id: str = ""

    def check(self) -> None:
        """
        Raises Rejected if the filter is empty, or cannot be understood.
        """
        found = [getattr(self, key) for key in KEYS]
        if not any(found):
            raise Rejected(f"name what to trace: one of {', '.join(KEYS)}")
        if max(map(len, found)) > MAX_FILTER_CHARS:
            raise Rejected(f"a text of a filter has at most {MAX_FILTER_CHARS} characters")
        if self.peer:
            try:
                ip_network(self.peer, strict=False)
            except ValueError as why:
                raise Rejected(f"peer: {why}"[:300]) from None

    def as_dict(self) -> dict[str, str]:
        found: dict[str, str] = msgspec.to_builtins(self)
        return found

    def takes_header(self, message: Message) -> bool:
        """
        Are the addresses and the id of this message those of the filter?
        """
        if self.id and str(message.id) != self.id:
            return False
        if not self.address:
            return True
        to = message.to
        return any(
            _is_at(each, self.address) for each in (message.from_, *(to if isinstance(to, list) else (to,)))
        )

    def takes_session(self, session: Session | None, connection: Any) -> bool:
        """
        Are the session, the user and the peer those of the filter?
        """
        if self.session and (session is None or session.runtime != self.session):
            return False
        if self.user and (session is None or session.identity != self.user):
            return False
        return not self.peer or _is_peer(getattr(connection, "peer", ""), self.peer)

    def takes(self, message: Message, session: Session | None) -> bool:
        """
        Does the filter take this message of the session?
        """
        if not self.takes_header(message):
            return False
        if self.takes_session(session, message.origin):
            return True
        # To a session that is not there, too.
        return bool(self.session) and not (self.user or self.peer) and message.to == self.session

    def takes_for(self, message: Message, recipient: Session) -> bool:
        """
        Does the filter take this message because of this recipient?
        """
        return self.takes_header(message) and self.takes_session(recipient, recipient.connection)


def _is_at(address: str, wanted: str) -> bool:
    return address == wanted or address.startswith(wanted.rstrip("/") + "/")


def _is_peer(peer: str, wanted: str) -> bool:
    host, _, _port = peer.rpartition(":")
    for name in (peer, host.strip("[]")):
        try:
            return ip_address(name) in ip_network(wanted, strict=False)
        except ValueError:
            continue
    return False
