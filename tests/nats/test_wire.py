"""
Commands, INFO, headers, nkeys and credentials as they are on the wire.
"""

import base64
import binascii
import contextlib
import json
import os

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from msgnode.nats.errors import CredentialsError, HeaderError, ProtocolError, SubjectError
from msgnode.nats.wire import commands
from msgnode.nats.wire.commands import MAX_SUBJECT_BYTES, Subjects, decode_info, encode_subject
from msgnode.nats.wire.credentials import JWT, NKey, Token, UserPassword, parse_credentials
from msgnode.nats.wire.message import Message, decode_headers, encode_headers
from msgnode.nats.wire.nkeys import ROLES, KeyPair
from tests.support.nats_jwt import creds_file, new_key

# From the documentation of nkeys for Go: a seed of a user and its public key.
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def test_info() -> None:
    """
    INFO has the fields that the server sent; unknown ones are ignored.
    """
    info = decode_info(b'{"server_id": "x", "max_payload": 5, "connect_urls": ["a:1"], "new": [1]}')

    assert (info.server_id, info.max_payload, info.connect_urls, info.ldm) == ("x", 5, ("a:1",), False)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b'{"max_payload": "x"}', b'{"server_id": "\xff"}', b'{"x": ' + b"[" * 30_000]
)
def test_wrong_info(text: bytes) -> None:
    """
    INFO that is no object of the expected types is a protocol error.
    """
    with pytest.raises(ProtocolError, match="expected INFO"):
        decode_info(text)


@given(st.binary(max_size=60))
def test_any_info(text: bytes) -> None:
    """
    No bytes raise anything but a ProtocolError.
    """
    with contextlib.suppress(ProtocolError):
        decode_info(text)


def test_commands() -> None:
    """
    Commands are written as the protocol has them.
    """
    assert commands.subscribe(b"a", b"", b"1") == b"SUB a 1\r\n"
    assert commands.subscribe(b"a", b"q", b"1") == b"SUB a q 1\r\n"
    assert commands.unsubscribe(b"1") == b"UNSUB 1\r\n"
    assert commands.unsubscribe(b"1", 5) == b"UNSUB 1 5\r\n"
    assert commands.publish(b"a", b"", b"hi") == b"PUB a 2\r\nhi\r\n"
    assert commands.publish(b"a", b"r", b"") == b"PUB a r 0\r\n\r\n"
    assert commands.publish_with_headers(b"a", b"", b"HH", b"hi") == b"HPUB a 2 4\r\nHHhi\r\n"
    assert commands.publish_with_headers(b"a", b"r", b"HH", b"") == b"HPUB a r 2 2\r\nHH\r\n"


@pytest.mark.parametrize(
    "subject",
    ["", "a b", "a\r\nPUB b 0", "a.", ".a", "a..b", "a.>.b", "\t", "a\x00", "x" * (MAX_SUBJECT_BYTES + 1)],
)
def test_wrong_subjects(subject: str) -> None:
    """
    A subject that would break the protocol, or that no server takes, is refused.
    """
    with pytest.raises(SubjectError):
        encode_subject(subject)


def test_subjects_to_publish() -> None:
    """
    Nothing can be published to a wildcard; a star within a token is none.
    """
    subjects = Subjects()
    for wild in ("*", "a.*", "a.>", ">"):
        with pytest.raises(SubjectError, match="without wildcards"):
            subjects.to_publish(wild)

    assert [subjects.to_publish(each) for each in ("a*.b", "grüße", "a*.b")] == [
        b"a*.b",
        "grüße".encode(),
        b"a*.b",
    ]


def test_many_subjects() -> None:
    """
    Any number of subjects can be used.
    """
    subjects = Subjects()

    assert all(subjects.to_publish(f"a.{number}") == b"a.%d" % number for number in range(10_000))


names = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1)
values = st.text(st.characters(exclude_categories=["C"])).map(str.strip)


@given(st.dictionaries(names, st.lists(values, min_size=1, max_size=3), max_size=4))
def test_headers_round_trip(headers: dict[str, list[str]]) -> None:
    """
    Headers are read as they were written.
    """
    assert decode_headers(encode_headers(headers)) == headers


@pytest.mark.parametrize(
    "headers", [{"a b": "x"}, {"a:": "x"}, {"": "x"}, {"a": "x\r\ny"}, {"a": ["x", "\n"]}, {"ä": "x"}]
)
def test_wrong_headers_out(headers: dict[str, str]) -> None:
    """
    A header that would break the block is refused.
    """
    with pytest.raises(SubjectError):
        encode_headers(headers)


@given(st.one_of(st.binary(max_size=50), st.binary(max_size=50).map(lambda end: b"NATS/1.0\r\n" + end)))
def test_any_headers(block: bytes) -> None:
    """
    No bytes raise anything but a HeaderError, and the status is a number.
    """
    message = Message("a", "", b"", block)
    assert 0 <= message.status <= 999
    with contextlib.suppress(HeaderError):
        assert isinstance(message.headers, dict)


def test_status() -> None:
    """
    The status is that of the first line, with or without a text.
    """
    for first, status in ((b"NATS/1.0", 0), (b"NATS/1.0 503", 503), (b"NATS/1.0 100 Idle Heartbeat", 100)):
        message = Message("a", "", b"", first + b"\r\nA: b\r\n\r\n")
        assert (message.status, message.headers) == (status, {"A": ["b"]})
    assert Message("a", "", b"").status == 0


def test_known_nkey() -> None:
    """
    The seed and the public key of the documentation of nkeys belong together.
    """
    key = KeyPair.from_seed(SEED)

    assert (key.role, key.public, key.seed) == ("user", PUBLIC, SEED)


@pytest.mark.parametrize("role", ROLES)
def test_nkey_round_trip(role: str) -> None:
    """
    A seed has its role and its key, and begins with the letters of the role; the signature is of that key.
    """
    key = KeyPair(role, os.urandom(32))
    again = KeyPair.from_seed(key.seed)
    raw = base64.b32decode(key.public)[1:33]

    assert (again.role, again.public) == (role, key.public)
    assert key.seed[:2] == "S" + {"server": "N"}.get(role, role[0].upper()) == "S" + key.public[0]
    Ed25519PublicKey.from_public_bytes(raw).verify(again.sign(b"nonce"), b"nonce")


@pytest.mark.parametrize(
    "seed", ["", "SU", SEED[:-1], SEED[:-1] + "A", SEED.lower(), PUBLIC, "ß", "A" * 58, "SUACSSL3UAHUDXK" * 4]
)
def test_wrong_seeds(seed: str) -> None:
    """
    A seed that was not copied as a whole, or is none, is refused, with a text that does not have it.
    """
    with pytest.raises(CredentialsError) as found:
        KeyPair.from_seed(seed)

    assert not seed or seed not in str(found.value)


def test_unknown_role() -> None:
    """
    A seed of a role that is none is refused.
    """
    data = bytes([18 << 3 | 31 >> 2, 31 << 3 & 0xFF]) + bytes(32)
    checked = data + binascii.crc_hqx(data, 0).to_bytes(2, "little")
    with pytest.raises(CredentialsError, match="operator, account, user"):
        KeyPair.from_seed(base64.b32encode(checked).decode().rstrip("="))


def test_credentials() -> None:
    """
    Each kind of credentials has its fields of CONNECT, and none shows its secret.
    """
    key = new_key("user")
    signed = NKey(key.seed).fields("nonce")

    assert UserPassword("u", "p").fields("") == {"user": "u", "pass": "p"}
    assert Token("t").fields("") == {"auth_token": "t"}
    assert signed == {
        "nkey": key.public,
        "sig": base64.urlsafe_b64encode(key.sign(b"nonce")).decode().rstrip("="),
    }
    assert JWT("j", key.seed).fields("nonce") == {"jwt": "j", "sig": signed["sig"]}
    assert JWT("bearer").fields("") == {"jwt": "bearer"}
    for each in (UserPassword("u", "hidden"), Token("hidden"), NKey("hidden"), JWT("j", "hidden")):
        assert "hidden" not in repr(each)


def test_no_nonce() -> None:
    """
    Without a nonce nothing can be signed.
    """
    with pytest.raises(CredentialsError, match="nonce"):
        NKey(SEED).fields("")


def test_credentials_file() -> None:
    """
    A file of credentials has a JWT and a seed; one without is refused.
    """
    user = JWT("a.b.c", SEED)

    assert parse_credentials(creds_file(user)) == user
    for text in ("", creds_file(user).replace("NKEY SEED", "SEED"), creds_file(JWT("a.b.c", "SUA"))):
        with pytest.raises(CredentialsError):
            parse_credentials(text)


def test_connect() -> None:
    """
    CONNECT has its options as JSON on one line.
    """
    line = commands.connect({"user": "a\r\nb"})

    assert line.count(b"\r\n") == 1
    assert json.loads(line[8:]) == {"user": "a\r\nb"}
