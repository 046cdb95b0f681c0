"""
URLs as operators may see them: without passwords.
"""

import re

HIDDEN = "***"
_HOST = re.compile(r"(\[[0-9a-zA-Z:.%]*\]|[^:\[\]]*)(:[0-9]*)?")
_SECRET = re.compile(r"([?&#][^=&#]*(?:token|secret|password|key|auth|sig)[^=&#]*=)[^&#]+", re.IGNORECASE)


def _hidden(found: re.Match[str]) -> str:
    return found[1] + HIDDEN


def masked(url: str) -> str:
    """
    Returns the URL with *** in the place of its user and password, and of parameters that are named like
    secrets. Any other text stays as it is.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        rest = f"{HIDDEN}@{authority.rpartition('@')[2]}{rest[len(authority) :]}"
    elif "@" in rest and not _HOST.fullmatch(authority):  # a password with a slash in it
        rest = f"{HIDDEN}@{rest.rpartition('@')[2]}"
    return f"{scheme}://{_SECRET.sub(_hidden, rest)}"
