"""
A certificate authority in a directory: ca.pem, ca.key, DOMAIN.pem and DOMAIN.key for each node, and the list
of revoked certificates, ca.crl.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
MAX_COMMON_NAME = 64  # characters, by RFC 5280


class Unusable(Exception):
    """
    A directory or file that the authority cannot use; the text says why.
    """


class DirectoryAuthority:
    """
    An authority whose files are in a directory, made at its first use and kept afterwards.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "ca.pem"
        self.list_path = directory / "ca.crl"
        key_path = directory / "ca.key"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.is_new = not self.path.exists() and not key_path.exists()
            if self.is_new:
                self._create(key_path)
            self._certificate = x509.load_pem_x509_certificate(self.path.read_bytes())
            self._key: Any = load_pem_private_key(key_path.read_bytes(), None)
        except OSError as why:
            raise Unusable(f"{why.filename or directory}: {why.strerror}") from None
        except (ValueError, TypeError):
            raise Unusable(f"{self.path} and {key_path}: expected a certificate and its key in PEM") from None
        if _encoded(self._certificate.public_key()) != _encoded(self._key.public_key()):
            raise Unusable(f"{self.path}: expected the certificate of the key in {key_path}")

    def issue(self, domain: str, days: int, again: bool = False) -> tuple[Path, Path]:
        """
        Make the certificate and the key of a domain's node. `again` replaces those that are there.
        """
        cert_path, key_path = self.directory / f"{domain}.pem", self.directory / f"{domain}.key"
        there = [path for path in (cert_path, key_path) if path.exists()]
        if there and not again:
            raise Unusable(f"{there[0]}: exists already; --again replaces it")
        name = f"msg-node.{domain}"
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(name[:MAX_COMMON_NAME], self._certificate.subject, key, days)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            # A node is a server on the links it takes, and a client on those it dials.
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        try:
            _write_key(key_path, key)
            cert_path.write_bytes(certificate.public_bytes(Encoding.PEM))
        except OSError as why:
            raise Unusable(f"{why.filename}: {why.strerror}") from None
        return cert_path, key_path

    def revoke(self, domains: Sequence[str], days: int) -> Path:
        """
        Add the certificates of these domains to the list of revoked ones, which ends after so many days.
        """
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now - timedelta(hours=1))  # clocks differ
            .next_update(now + timedelta(days=days))
        )
        revoked = (
            {} if not self.list_path.exists() else {each.serial_number: each for each in self._read_list()}
        )
        for domain in domains:
            try:
                certificate = x509.load_pem_x509_certificate((self.directory / f"{domain}.pem").read_bytes())
            except (OSError, ValueError):
                raise Unusable(f"{self.directory / domain}.pem: expected a certificate to revoke") from None
            serial = certificate.serial_number
            made = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            revoked.setdefault(serial, made)
        for each in revoked.values():
            builder = builder.add_revoked_certificate(each)
        number = x509.CRLNumber(int(now.timestamp()))
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(number, critical=False).add_extension(issuer, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        written = self.list_path.with_suffix(".new")
        try:
            written.write_bytes(signed.public_bytes(Encoding.PEM))
            written.replace(self.list_path)  # a node that reads it finds a whole one
        except OSError as why:
            raise Unusable(f"{why.filename}: {why.strerror}") from None
        return self.list_path

    def _read_list(self) -> x509.CertificateRevocationList:
        try:
            return x509.load_pem_x509_crl(self.list_path.read_bytes())
        except (OSError, ValueError):
            raise Unusable(f"{self.list_path}: expected a certificate revocation list in PEM") from None

    def _create(self, key_path: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = f"msgnode test authority {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        builder = (
            _builder(name, None, key, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
        )
        _write_key(key_path, key)
        self.path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))


def _encoded(key: Any) -> bytes:
    """
    A public key as bytes: before cryptography 40, which systems still have, equal keys were not equal.
    """
    return bytes(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _builder(name: str, issuer: x509.Name | None, key: Any, days: int) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(path: Path, key: Any) -> None:
    """
    Write a key that no other user can read, not even for a moment.
    """
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
