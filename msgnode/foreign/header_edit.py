"""
Edits of a message's header; everything else keeps its bytes.
"""

from typing import Any

import msgspec
from msgspec import Raw

from msgnode.protocol import lossless_json


def edited(data: bytes, **changes: Any) -> bytes:
    """
    The message with these fields of its header; None removes one.
    """
    try:
        fields: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Raw])
        return msgspec.json.encode(_merged(fields, changes))
    except msgspec.DecodeError:  # a lone surrogate, which msgspec refuses
        return lossless_json.dumps(_merged(lossless_json.loads(data), changes))


def _merged(fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}
