"""
Secrets in the configuration, which no report and no error shows.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgnode.structures.url_masking import HIDDEN, masked

SECRETS = ("secret", "password", "token")
FILES = ("turn_secret_file", "cli_password_file")
NOT_SECRET = ("message_token", "takeover", "client_secret_file", "token_file", "token_keys_file", *FILES)
MIN_CHARS = 4  # of a secret that is replaced wherever it is in a text

_USER_OF_URL = re.compile(r"://[^\s'\"]*@")


def is_secret(key: str) -> bool:
    """
    Is the value of the key a secret, by its name?
    """
    name = key.rpartition(".")[2]
    return name not in NOT_SECRET and any(word in name for word in SECRETS)


def without_secrets(key: str, value: Any) -> Any:
    """
    The value, with *** in the place of each secret in it, also of those in URLs.
    """
    if is_secret(key) and isinstance(value, str):
        return HIDDEN if value else ""
    if isinstance(value, Mapping):
        return {each: without_secrets(each, inner) for each, inner in value.items()}
    if isinstance(value, list):
        return [without_secrets(key, inner) for inner in value]
    return masked(value) if isinstance(value, str) else value


def text_without_secrets(text: str, table: Any = None) -> str:
    """
    The text of an error without the secrets of the table that it is about, and without users and passwords of
    URLs.
    """
    for value, shown in _secrets("", table):
        text = text.replace(repr(value), repr(shown))
        if len(value) >= MIN_CHARS:
            text = text.replace(value, shown)
    return _USER_OF_URL.sub(f"://{HIDDEN}@", text)


def _secrets(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """
    The texts in a table that have a secret, each with what may be shown of it.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets(str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets(key, inner)
    elif isinstance(value, str):
        shown = without_secrets(key, value)
        if shown != value:
            yield value, shown
