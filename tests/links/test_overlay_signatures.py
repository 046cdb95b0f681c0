"""
Signed advertisements: what is believed, and what is refused.
"""

import base64
import json

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from msgnode.links.overlay.advertisement import MAX_SEQUENCE, Refused, read
from msgnode.links.overlay.signatures import Signatures
from tests.support.links_signatures import DAY, KEYS, NOW, Anchors, Owner, advertisement

A, B = "mn://a.example/n", "mn://b.example/n"


def altered(compact, **changes):
    """
    The same JWS with another payload, and the old signature.
    """
    header, payload, signature = compact.split(".")
    content = msgspec.structs.replace(read(compact), **changes)
    payload = base64.urlsafe_b64encode(msgspec.msgpack.encode(content)).decode().rstrip("=")
    return f"{header}.{payload}.{signature}"


def with_header(compact, **changes):
    header, payload, signature = compact.split(".")
    content = json.loads(base64.urlsafe_b64decode(header + "==")) | changes
    header = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    return f"{header}.{payload}.{signature}"


def verify(seal, compact):
    return seal.verify(compact, seal.read(compact))


def refused(seal, compact):
    with pytest.raises(Refused) as found:
        verify(seal, compact)
    return found.value.reason


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["ES256", "ES384", "Ed25519", "RS256"],
)
def test_keys_of_each_kind_sign(key):
    """
    An advertisement that was signed by an EC, Ed25519 or RSA key is verified, with all it says.
    """
    seal = Owner("a.example", key=key).seal

    compact = seal.sign(advertisement())

    assert advertisement() == seal.read(compact)
    assert NOW + DAY == verify(seal, compact).until


def test_chains_are_verified_once():
    """
    The same chain is not verified again, until trust has changed.
    """
    owner = Owner("a.example")
    for counter in range(5):
        verify(owner.seal, owner.seal.sign(advertisement(sequence=(1, counter))))
    first = owner.anchors.asked

    owner.seal.trust_changed()
    verify(owner.seal, owner.seal.sign(advertisement()))

    assert (1, 2) == (first, owner.anchors.asked)


def test_refused_chains_are_remembered():
    """
    A chain that was refused is not verified again, either.
    """
    owner = Owner("a.example")
    stranger = Owner("a.example")
    compact = stranger.seal.sign(advertisement())

    reasons = [refused(owner.seal, compact) for _ in range(5)]

    assert ["untrusted"] * 5 == reasons
    assert 1 == owner.anchors.asked


def test_an_altered_advertisement():
    """
    Content that was altered after it was signed is refused.
    """
    owner = Owner("a.example")

    assert "signature" == refused(owner.seal, altered(owner.seal.sign(advertisement()), links={B: 1}))


def test_a_foreign_domain():
    """
    A node that speaks for a domain that its certificate does not name is refused, even by the same authority.
    """
    anchors = Anchors({})
    a, b = Owner("a.example", anchors), Owner("b.example", anchors)
    anchors.authorities["b.example"] = anchors.authorities["a.example"]

    assert "untrusted" == refused(b.seal, a.seal.sign(advertisement(B, links={A: 1})))


@pytest.mark.parametrize("name", ["a.example", "*.a.example", "msg-node.b.example", "msg-node.x.a.example"])
def test_the_name_of_a_certificate(name):
    """
    The certificate is for msg-node.<domain>, not for the bare domain, and has no wildcard.
    """
    owner = Owner("a.example", name=name)

    assert "untrusted" == refused(owner.seal, owner.seal.sign(advertisement()))


def test_a_pinned_key_may_have_any_name():
    """
    The certificate of a key that was configured by its hash may have any name.
    """
    owner = Owner("a.example", name="anything.example")
    owner.anchors.pins.append(owner.key.public_key())

    assert verify(owner.seal, owner.seal.sign(advertisement()))


def test_an_ended_certificate():
    """
    A certificate is believed until it ends, also if its chain has been verified before.
    """
    now = [NOW]
    owner = Owner("a.example", wall=lambda: now[0])
    compact = owner.seal.sign(advertisement())
    verify(owner.seal, compact)

    now[0] += DAY

    assert "untrusted" == refused(owner.seal, compact)


@pytest.mark.parametrize(
    "changes",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": "RS256"},
        {"typ": "JWT"},
        {"x5c": []},
        {"x5c": ["AAAA"] * 6},
        {"x5c": ["nonsense!"]},
        {"x5c": ["AAAA"]},
        {"jku": "https://evil.example"},
    ],
)
def test_headers(changes):
    """
    Another algorithm than that of the certificate's key, another type, or no chain is refused.
    """
    owner = Owner("a.example")

    assert "untrusted" == refused(owner.seal, with_header(owner.seal.sign(advertisement()), **changes))


@pytest.mark.parametrize(
    "what",
    [
        advertisement("mn://A.example/n"),
        advertisement("nonsense"),
        advertisement(kind="ROUTER"),
        advertisement(links={A: 1}),
        advertisement(links={B: 0}),
        advertisement(links={B: -5}),
        advertisement(links={B: 1 << 40}),
        advertisement(links={"nonsense": 1}),
        advertisement(links={f"mn://b.example/n{number}": 1 for number in range(257)}),
        advertisement(audience=B, links={"mn://c.example/n": 1}),
        advertisement(audience="b.example"),
        advertisement(audience="mn://"),
        advertisement(sequence=(1 << 63, 1)),
        advertisement(sequence=(1, (1 << 63) - 1)),
        advertisement(sequence=(-1, 1)),
        advertisement(sequence=(1, MAX_SEQUENCE + 1)),
        advertisement(keys=msgspec.structs.replace(KEYS, start=b"short")),
        advertisement(keys=msgspec.structs.replace(KEYS, x25519=b"short")),
        advertisement(keys=msgspec.structs.replace(KEYS, rsa=b"x" * 2000)),
        advertisement(keys=msgspec.structs.replace(KEYS, features=frozenset(map(str, range(20))))),
    ],
)
def test_content_beyond_the_bounds(what):
    """
    A signed advertisement that says more than its signer owns, or has numbers out of bounds, is refused.
    """
    seal = Owner("a.example").seal

    assert "malformed" == refused(seal, seal.sign(what))


@pytest.mark.parametrize("compact", ["", ".", "..", "...", "a.b.c", "é.é.é", "a" * 100, "a.gA.c"])
def test_garbage(compact):
    """
    Text that is no JWS is refused.
    """
    assert "malformed" == refused(Owner("a.example").seal, compact)


def test_too_big():
    """
    An advertisement of more than 16 KiB is refused unread.
    """
    assert "too-big" == refused(Owner("a.example").seal, "a" * 16_385)


def test_a_renewed_key_signs():
    """
    After a change of the certificate the new key signs.
    """
    owner = Owner("a.example")
    old = owner.seal.sign(advertisement())
    owner.seal.renew(*owner.authority.issue("msg-node.a.example"))

    new = owner.seal.sign(advertisement())

    assert verify(owner.seal, old).key_hash != verify(owner.seal, new).key_hash


def test_weak_keys_do_not_sign():
    """
    A key of another kind, or an RSA key of less than 2,048 bits, is refused at the start.
    """
    with pytest.raises(Exception, match="expected a"):
        Signatures(Anchors({}), lambda: NOW, ec.generate_private_key(ec.SECP521R1()), [])
