"""
Edits `body.auth` and other body fields without encoding the whole message again.

The bytes of the body are replaced inside the message; everything else stays as the sender wrote it.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw

from msgnode.protocol import lossless_json
from msgnode.protocol.message import Message, decode

AUTH = {True: b'"auth":true', False: b'"auth":false'}

_BEFORE = re.compile(rb'[{,]\s*"body"\s*:\s*\Z')
_SEARCH_BYTES = 64  # bytes searched for the key before a body


def set_auth_flag(message: Message, permitted: bool) -> None:
    """
    Set `body.auth`, whatever the sender wrote there, to whether a policy permitted the message.
    """
    body, auth = bytes(message.body), AUTH[permitted]
    if b'"auth"' in body or b"\\u" in body:  # a key may be written with escapes
        _replace(message, _with_auth(body, permitted))
    elif body[:2] == b"{}" or body[:1] != b"{":  # empty, or no body at all
        _replace(message, b"{" + auth + b"}")
    elif body[1:2] == b'"':
        _replace(message, b"{" + auth + b"," + body[1:])
    else:
        _replace(message, _with_auth(body, permitted))


def replace_body(message: Message, data: bytes) -> None:
    """
    Replace the bytes of the message by `data`, which has another body.
    """
    message.data = data
    message.body = decode(data).body


def _with_auth(body: bytes, permitted: bool) -> bytes:
    try:
        fields: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Raw])
        fields["auth"] = permitted
        return msgspec.json.encode(fields)
    except msgspec.DecodeError:  # a lone surrogate, which msgspec refuses
        return lossless_json.dumps({**lossless_json.loads(body), "auth": permitted})


def _replace(message: Message, body: bytes) -> None:
    old, data = bytes(message.body), message.data
    message.body = Raw(body)
    if old and data.endswith(old + b"}"):
        at = len(data) - len(old) - 1
        # The key is a real key, not the end of a string, so the body is the last field.
        if data[at - 8 : at] == b',"body":' or _BEFORE.search(data, max(0, at - _SEARCH_BYTES), at):
            message.data = data[:at] + body + b"}"
            return
    if not old and data[-1:] == b"}":
        message.data = data[:-1] + b',"body":' + body + b"}"
        return
    try:
        fields = msgspec.json.decode(data, type=dict[str, Raw])
        fields["body"] = Raw(body)
        message.data = msgspec.json.encode(fields)
    except msgspec.DecodeError:
        message.data = lossless_json.dumps({**lossless_json.loads(data), "body": lossless_json.loads(body)})
