"""
Receipts: what became of a message whose sender asked with `receipt: true`.

One for each address the message was sent to.  A client that acknowledges is
waited for (200); handing it to one that does not is all that can be said of it
(202).
"""

from collections.abc import Callable

from msgnode.message import Message, compose, decode

RECEIPT = "mn:/receipt"

TEXTS = {
    200: "the recipient has it",
    202: "handed to a client that does not acknowledge",
    403: "refused",
    404: "nobody is bound to this address",
    408: "its time ran out while it waited",
    410: "the recipient's session ended while it waited",
    413: "too large",
    429: "too many messages; it was not taken",
    503: "dropped, because too much waited",
}


class Receipts:
    """
    Written by the node, and carried by `publish` like any message.
    """

    def __init__(self, publish: Callable[[Message], None]) -> None:
        self._publish = publish

    def give(self, message: Message, code: int, recipients: int = 1) -> None:
        """
        Tell the sender, if it asked; never about a receipt.
        """
        if not message.receipt or not message.from_ or message.type.lower() == "receipt":
            return
        body = {
            "code": code,
            "description": TEXTS.get(code, "refused"),
            "to": message.to,
            "recipients": recipients,
        }
        self._publish(compose(message.id, "receipt", RECEIPT, message.from_, body))

    def give_late(self, data: bytes, code: int) -> None:
        """
        The same for what was kept, as bytes.
        """
        self.give(decode(data), code)
