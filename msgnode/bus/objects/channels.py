"""
The channels of an object: the addresses below it at which its changes and its children are published.
"""

CHANGES, CHILDREN, HISTORY, SUBSCRIPTION = "/changes", "/children/", "/history", "/subscription"


def object_of(address: str) -> str:
    """
    The object whose changes or children are published at this address; empty if it is none of these.

    An address below `/children/` belongs to the object above that, also if it ends as a channel.
    """
    at = address.find(CHILDREN)
    if at > 0:
        return address[:at]
    return address[: -len(CHANGES)] if address.endswith(CHANGES) else ""
