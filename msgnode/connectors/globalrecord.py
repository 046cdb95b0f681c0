"""
A record of the global registry: a JWT signed with the key that its GUID is made of.

Off-the-shelf checks refuse it: the header says ES256, but the curve is
secp256k1, and the signature is raw with some clients and DER with others.
"""

import hashlib
import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

ROUNDS = 10_000
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----(.+)-----END PUBLIC KEY-----", re.DOTALL)


class WrongRecord(ValueError):
    """
    The text is no record, or not the one it says it is.
    """


class GlobalRecord(NamedTuple):
    """
    What a JWT holds: the data set, and what is signed by whom.
    """

    data: dict[str, Any]
    signed: bytes
    signature: bytes


def read_record(jwt: str) -> GlobalRecord:
    """
    The record in this JWT; nothing of it is checked but its form.
    """
    parts = jwt.split(".")
    if len(parts) != 3:
        raise WrongRecord(f"expected a JWT of three parts, found {len(parts)}")
    try:
        payload = msgspec.json.decode(_plain(parts[1]), type=dict[str, Any])
        data = msgspec.json.decode(_plain(payload["data"]), type=dict[str, Any])
        signature = _plain(parts[2])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as why:
        raise WrongRecord("expected a JWT whose 'data' is an object in base64url") from why
    return GlobalRecord(data, f"{parts[0]}.{parts[1]}".encode(), signature)


def check_record(record: GlobalRecord) -> None:
    """
    Is it signed with its own key, and is its GUID made of that key?  WrongRecord says what is not.
    """
    check_signature(record, record.data)
    if record.data.get("guid") != guid_of(record.data):
        raise WrongRecord("its GUID is not made of its 'publicKey' and 'salt'")


def check_signature(record: GlobalRecord, data: dict[str, Any]) -> None:
    """
    Is it signed with the key in `data`?
    """
    signature = record.signature
    if len(signature) == 64:  # raw: the two numbers, one behind the other
        first, second = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
        signature = encode_dss_signature(first, second)
    try:
        _key(data).verify(signature, record.signed, ECDSA(SHA256()))
    except InvalidSignature:
        raise WrongRecord("its signature is not made with its 'publicKey'") from None


def guid_of(data: dict[str, Any]) -> str:
    """
    The GUID that belongs to a data set's key and salt.  Takes some milliseconds.
    """
    key, salt = data.get("publicKey"), data.get("salt")
    if not isinstance(key, str) or not isinstance(salt, str):
        raise WrongRecord("expected texts in 'publicKey' and 'salt'")
    made = hashlib.pbkdf2_hmac("sha256", key.encode(), salt.encode(), ROUNDS, 32)
    return urlsafe_b64encode(made).decode().rstrip("=")


def _key(data: dict[str, Any]) -> EllipticCurvePublicKey:
    text = data.get("publicKey")
    match = _PEM.fullmatch(text) if isinstance(text, str) else None
    try:
        key = load_der_public_key(b64decode(match[1])) if match else None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        raise WrongRecord("expected a public key of an elliptic curve in 'publicKey'")
    return key


def _plain(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
