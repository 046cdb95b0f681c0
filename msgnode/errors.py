"""
What a sender is told when its message is not carried.

Raised where it is known, answered in one place: Reception.  A bug is
not one of these; it reaches the log.
"""


class Rejected(Exception):
    """
    A message the node does not carry, with the code its sender is told.

    The codes are those of docs/protocol.md: 400 malformed, 401 no session,
    403 refused, 404 nobody there, 413 too large, 429 too many, 501 not
    offered, 503 not now.
    """

    code = 400

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code


class Malformed(Rejected):
    """
    Not a message at all; answered by mn:/validator.

    `id` and `from_` are what could be read of it, for the answer.
    """

    def __init__(self, text: str, id: int | str | None = None, from_: str | None = None) -> None:
        super().__init__(text)
        self.id = id
        self.from_ = from_


class Claimed(Rejected):
    """
    The sender says it is the node; answered by mn:/validator.
    """

    code = 403


class NoSession(Rejected):
    """
    A message before `open`; answered by mn:/validator.
    """

    code = 401


class NoRoute(Rejected):
    """
    Nobody is bound to the address.
    """

    code = 404


class NotOffered(Rejected):
    """
    A node address that nothing here answers for.
    """

    code = 501
