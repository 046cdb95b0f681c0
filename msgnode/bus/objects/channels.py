"""
The channels of an object: the addresses below it at which its changes and its children are published.
"""

CHANGES, CHILDREN, HISTORY, SUBSCRIPTION = "/changes", "/children/", "/history", "/subscription"


def object_of(address: str) -> str:
    """
    The object whose changes or children are published at this address; empty if it is none of these.
    """
    if address.endswith(CHANGES):
        return address[: -len(CHANGES)]
    at = address.find(CHILDREN)
    return address[:at] if at > 0 else ""
