"""
A record of the global registry: a JWT signed with the key from which its GUID is derived.

Standard JWT libraries refuse it: the header says ES256, but the curve is secp256k1, and the signature is raw
from some clients and DER from others. Two ways of deriving the GUID are in use.
"""

import hashlib
import hmac
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

ALGORITHM = "ES256"
ROUNDS = 10_000
ROUNDS_AT_ONCE, PAUSE_SECONDS = 500, 0.001  # rounds between two pauses, about half a millisecond; seconds
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----(.+)-----END PUBLIC KEY-----", re.DOTALL)


class WrongRecord(ValueError):
    """
    A record that is malformed, or whose signature, GUID or validity is wrong.
    """


class GlobalRecord(NamedTuple):
    """
    The parts of a record: JWT header, claims, the data set in the claims, the signed bytes, and the
    signature.
    """

    header: dict[str, Any]
    claims: dict[str, Any]
    data: dict[str, Any]
    signed: bytes
    signature: bytes


def read_record(jwt: str) -> GlobalRecord:
    """
    Parse a record. Only its form is checked; WrongRecord if that is wrong.
    """
    parts = jwt.split(".")
    if len(parts) != 3:
        raise WrongRecord(f"expected a JWT of three parts, found {len(parts)}")
    try:
        claims = msgspec.json.decode(_plain(parts[1]), type=dict[str, Any])
        data = msgspec.json.decode(_plain(claims["data"]), type=dict[str, Any])
        header, signature = _header(parts[0]), _plain(parts[2])
        signed = f"{parts[0]}.{parts[1]}".encode("ascii")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as why:
        raise WrongRecord("expected a JWT whose 'data' is an object in base64url") from why
    return GlobalRecord(header, claims, data, signed, signature)


def check_record(record: GlobalRecord) -> None:
    """
    Verify that the record is signed with its own key, and that its GUID is derived from that key. Else
    WrongRecord.
    """
    check_signature(record, record.data)
    guid = record.data.get("guid")
    if not any(guid == guid_of(record.data, derive) for derive in DERIVATIONS):
        raise WrongRecord("its GUID is not derived from its 'publicKey' and 'salt'")


def check_signature(record: GlobalRecord, data: dict[str, Any]) -> None:
    """
    Verify the signature with the key in `data`, by the one algorithm that the reTHINK server accepts. Else
    WrongRecord.
    """
    algorithm = record.header.get("alg")
    if algorithm != ALGORITHM:
        raise WrongRecord(f"expected {ALGORITHM!r} in 'alg' of its header, found {algorithm!r}"[:200])
    signature = record.signature
    if len(signature) == 64:  # raw: r and s, concatenated
        first, second = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
        signature = encode_dss_signature(first, second)
    try:
        _key(data).verify(signature, record.signed, ECDSA(SHA256()))
    except InvalidSignature:
        raise WrongRecord("its signature is not made with its 'publicKey'") from None


def check_time(record: GlobalRecord, now: float) -> None:
    """
    Verify `exp` and `nbf`, if present, at the time `now` in seconds since 1970. Else WrongRecord.
    """
    for claim, over in (("exp", "it has expired"), ("nbf", "it is not valid yet")):
        at = record.claims.get(claim)
        if at is None:
            continue
        if isinstance(at, str) and at.isascii() and at.isdigit() and len(at) < 20:
            at = int(at)
        if not isinstance(at, int | float) or isinstance(at, bool):
            raise WrongRecord(f"expected seconds since 1970 in {claim!r}, found {at!r}"[:200])
        if now >= at if claim == "exp" else now < at:
            raise WrongRecord(f"{over}: {claim!r} is {at}"[:200])


def pbkdf2(password: bytes, salt: bytes) -> bytes:
    """
    The standard derivation, used by the reTHINK server's tools and most libraries.
    """
    return hashlib.pbkdf2_hmac("sha256", password, salt, ROUNDS, 32)


def pbkdf2_of_text(password: bytes, salt: bytes, pause: Callable[[float], object] = time.sleep) -> bytes:
    """
    The derivation used by the GraphConnector of runtime-core.

    Its sjcl library appends the block number to the salt as the digit "1" instead of four bytes. No library
    does that. Such short hashes do not release Python's global interpreter lock, for which the reactor waits;
    so the thread pauses every ROUNDS_AT_ONCE rounds.
    """
    keyed = hmac.new(password, digestmod="sha256")
    derived, block = 0, salt + b"1"
    for number in range(ROUNDS):
        if not number % ROUNDS_AT_ONCE:
            pause(PAUSE_SECONDS)
        turn = keyed.copy()
        turn.update(block)
        block = turn.digest()
        derived ^= int.from_bytes(block)
    return derived.to_bytes(32)


DERIVATIONS = (pbkdf2, pbkdf2_of_text)


def guid_of(data: dict[str, Any], derive: Callable[[bytes, bytes], bytes] = pbkdf2) -> str:
    """
    The GUID derived from the key and salt of a data set. Takes some milliseconds.
    """
    key, salt = data.get("publicKey"), data.get("salt")
    if not isinstance(key, str) or not isinstance(salt, str):
        raise WrongRecord("expected texts in 'publicKey' and 'salt'")
    return urlsafe_b64encode(derive(key.encode(), salt.encode())).decode().rstrip("=")


def _key(data: dict[str, Any]) -> EllipticCurvePublicKey:
    text = data.get("publicKey")
    match = _PEM.fullmatch(text) if isinstance(text, str) else None
    try:
        key = load_der_public_key(_plain(match[1])) if match else None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        raise WrongRecord("expected a public key of an elliptic curve in 'publicKey'")
    return key


def _header(part: str) -> dict[str, Any]:
    """
    The JWT header, or {} if it is malformed.
    """
    try:
        return msgspec.json.decode(_plain(part), type=dict[str, Any])
    except (ValueError, RecursionError):
        return {}


def _plain(text: str) -> bytes:
    """
    Decode base64 or base64url, with or without line breaks and padding.
    """
    text = "".join(text.split())
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
