"""
Pseudonyms: keyed hashes replace identifiers, equal ones for equal identifiers, before anything is stored.

HMAC-SHA-256, truncated to 64 bits, in Spark's own functions. An address keeps its scheme and structure, so
that the analyses still work: domain and path are hashed separately; `/changes` and similar endings, and the
node's own services, stay.
"""

import hashlib
import hmac

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from msgnode.mining.sql.expressions import TYPES

_BLOCK_BYTES = 64  # of SHA-256
_DIGITS = 16
_PARTS = (
    r"^(?:([A-Za-z][A-Za-z0-9+.-]*:(?://)?))?"  # scheme
    r"((?:(?:msg-node|registry|idm|qos-broker)\.)?)"  # a service of the node
    r"([^/]*)"  # domain
    r"(.*?)"  # path
    r"((?:/(?:changes|registration|status|subscription|children|sm|address-allocation"
    r"|hyperty-address-allocation|object-address-allocation))*/?)$"
)


def pseudonymised(lines: DataFrame, key: bytes) -> DataFrame:
    """
    The lines with pseudonyms for sessions, addresses, ids, transactions, peers and unknown types; without bad
    texts.
    """
    known = F.lower("type").isin(*TYPES)
    return lines.withColumns(
        {
            **{name: address(F.col(name), key) for name in ("session", "from", "to", "source")},
            "resources": F.transform("resources", lambda each: address(each, key)),
            "id": F.when(F.col("id").isNotNull(), hashed(F.col("id"), key)),
            "transaction": F.when(F.col("transaction").isNotNull(), hashed(F.col("transaction"), key)),
            "peer": F.when(F.col("peer") == "unix", F.col("peer")).otherwise(_peer(key)),
            "type": F.when(known | F.col("type").isNull(), F.col("type")).otherwise(F.lit("other")),
            "text": F.when(F.col("text").isNotNull(), F.lit("")),
        }
    )


def fingerprint(key: bytes) -> str:
    """
    A value that distinguishes keys, and reveals nothing about them.
    """
    return hmac.digest(key, b"msgnode mine", "sha256").hex()[:_DIGITS]


def address(column: Column, key: bytes) -> Column:
    """
    `comm://example.org/9d2/changes` becomes `comm://<hash>/<hash>/changes`; `mn:/session` is unchanged.
    """
    part = [F.regexp_extract(column, _PARTS, number) for number in range(1, 6)]
    scheme, service, domain, path, tail = part
    hidden = F.concat(
        scheme,
        service,
        F.when(domain == "", F.lit("")).otherwise(hashed(F.lower(domain), key)),
        F.when(path == "", F.lit("")).otherwise(F.concat(F.lit("/"), hashed(path, key))),
        tail,
    )
    return F.when(column.isNull() | column.startswith("mn:"), column).otherwise(hidden)


def hidden_address(text: str, key: bytes) -> str:
    """
    The pseudonym of one address, computed on the driver, so that an operator can search for it.
    """
    import re

    if text.startswith("mn:"):
        return text
    found = re.match(_PARTS, text, re.DOTALL)
    scheme, service, domain, path, tail = found.groups("") if found else ("", "", text, "", "")
    hidden_path = "/" + _hashed(path, key) if path else ""
    return f"{scheme}{service}{_hashed(domain.lower(), key) if domain else ''}{hidden_path}{tail}"


def hidden_id(text: str, key: bytes) -> str:
    """
    The pseudonym of the id of a message.
    """
    return _hashed(text, key)


def _hashed(text: str, key: bytes) -> str:
    return hmac.digest(key, text.encode(), "sha256").hex()[:_DIGITS]


def hashed(column: Column, key: bytes) -> Column:
    """
    HMAC (RFC 2104) of the UTF-8 text.
    """
    if len(key) > _BLOCK_BYTES:
        key = hashlib.sha256(key).digest()
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    inner = F.lit(bytearray(byte ^ 0x36 for byte in padded))
    outer = F.lit(bytearray(byte ^ 0x5C for byte in padded))
    digest = F.sha2(F.concat(inner, column.cast("binary")), 256)
    return F.substring(F.sha2(F.concat(outer, F.unhex(digest)), 256), 1, _DIGITS)


def _peer(key: bytes) -> Column:
    """
    Address and port separately, so that connections from one address can be recognised.
    """
    host = F.regexp_extract("peer", r"^(.*):(\d+)$", 1)
    port = F.regexp_extract("peer", r"^(.*):(\d+)$", 2)
    split = F.concat(hashed(host, key), F.lit(":"), port)
    return F.when(F.col("peer").isNotNull(), F.when(port != "", split).otherwise(hashed(F.col("peer"), key)))
