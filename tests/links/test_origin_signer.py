"""
Signatures of messages by the keys that certificates of nodes have.
"""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from msgnode.links.trust.origin_signer import OriginSigner

A, B = "mn://a.example/n1", "mn://b.example/n1"
KEYS: list[Any] = [
    ec.generate_private_key(ec.SECP256R1()),
    ec.generate_private_key(ec.SECP384R1()),
    ed25519.Ed25519PrivateKey.generate(),
    rsa.generate_private_key(65537, 2048),
]


def test_each_kind_of_key_signs():
    """
    A signature by a key of any kind is good for exactly its data, its node, and nodes that know the key.
    """
    other = KEYS[0]
    for key in KEYS:
        signer = OriginSigner(A, key, {}.get)
        reader = OriginSigner(B, other, {A: key.public_key()}.get)
        signature = signer.sign(b"data")

        assert (reader.verify(A, b"data", signature), signer.verify(A, b"data", signature)) == ("", "")
        assert "invalid" in reader.verify(A, b"date", signature)
        assert "invalid" in reader.verify(A, b"data", b"")
        assert "not known" in reader.verify("mn://a.example/n2", b"data", signature)


def test_a_renewed_key_signs_from_then_on():
    """
    After a renewal, what the old key signed is good while that is the former key of the node, then refused.
    """
    keys, former = {A: KEYS[0].public_key()}, {}
    signer, reader = OriginSigner(A, KEYS[0], {}.get), OriginSigner(B, KEYS[1], keys.get, former.get)
    old = signer.sign(b"data")
    signer.renew(KEYS[2])
    former[A], keys[A] = keys[A], KEYS[2].public_key()
    under_way = reader.verify(A, b"data", old)
    del former[A]

    assert under_way == ""
    assert "invalid" in reader.verify(A, b"data", old)
    assert reader.verify(A, b"data", signer.sign(b"data")) == ""


def test_a_key_of_another_kind_is_refused():
    """
    A key that cannot sign advertisements signs no messages.
    """
    with pytest.raises(ValueError, match="expected an EC, Ed25519 or RSA key"):
        OriginSigner(A, ed448.Ed448PrivateKey.generate(), {}.get)
    signer = OriginSigner(B, KEYS[0], {A: ed448.Ed448PrivateKey.generate().public_key()}.get)
    assert "invalid" in signer.verify(A, b"data", b"signature")


def test_signatures_are_for_messages_only():
    """
    What the key signs for TLS or an advertisement is no signature of a message: a text precedes the data.
    """
    key = ed25519.Ed25519PrivateKey.generate()
    signer = OriginSigner(A, key, {}.get)

    assert "invalid" in signer.verify(A, b"data", key.sign(b"data"))
