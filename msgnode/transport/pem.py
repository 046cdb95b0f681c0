"""
Certificates and keys in PEM files, with errors that name the file.
"""

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates
from OpenSSL.crypto import X509
from twisted.internet.ssl import Certificate, PrivateCertificate


class PEMError(ValueError):
    """
    A file that cannot be read, or does not have the expected content.
    """


def read(path: str) -> bytes:
    """
    The content of the file. PEMError if it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as why:
        raise PEMError(f"{path}: cannot be read: {why.strerror}") from why


def x509_certificates(path: str) -> list[Any]:
    """
    All certificates in the file, in order, as cryptography's objects. PEMError if there is none.
    """
    data = read(path)
    try:
        return load_pem_x509_certificates(data)
    except ValueError as why:
        raise PEMError(f"{path}: expected certificates in PEM") from why


def authorities(path: str) -> list[Certificate]:
    """
    All certificates in the file, as trusted certificate authorities for Twisted.
    """
    return [Certificate(X509.from_cryptography(each)) for each in x509_certificates(path)]


def private_key(path: str) -> Any:
    data = read(path)
    try:
        return load_pem_private_key(data, None)
    except TypeError as why:
        raise PEMError(f"{path}: the key is encrypted; expected one without a passphrase") from why
    except ValueError as why:
        raise PEMError(f"{path}: expected a private key in PEM") from why


def private_certificate(certificate: str, key: str = "") -> PrivateCertificate:
    """
    A certificate with its private key, which is in the same file if `key` is empty.
    """
    pem = read(certificate) if key in ("", certificate) else read(certificate) + b"\n" + read(key)
    if b"ENCRYPTED" in pem:  # OpenSSL would ask for the passphrase on the terminal
        raise PEMError(f"{key or certificate}: the key is encrypted; expected one without a passphrase")
    try:
        own: PrivateCertificate = PrivateCertificate.loadPEM(pem)
    except Exception as why:  # OpenSSL raises several kinds
        where = f", there or in {key}, its key" if key else " and its key"
        raise PEMError(f"{certificate}: expected a certificate{' and' if key else ''}{where} in PEM") from why
    return own
