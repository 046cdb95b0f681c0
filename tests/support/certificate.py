"""
A certificate for example.org, made when the first test asks for it.
"""

import datetime
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_directory = tempfile.TemporaryDirectory()
_day = datetime.timedelta(days=1)
_now = datetime.datetime.now(datetime.UTC)
_key = ec.generate_private_key(ec.SECP256R1())
_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "example.org")])
_certificate = (
    x509.CertificateBuilder()
    .subject_name(_name)
    .issuer_name(_name)
    .public_key(_key.public_key())
    .serial_number(1)
    .not_valid_before(_now - _day)
    .not_valid_after(_now + _day)
    .add_extension(x509.SubjectAlternativeName([x509.DNSName("example.org")]), critical=False)
    .sign(_key, hashes.SHA256())
)

PEM = _certificate.public_bytes(serialization.Encoding.PEM)
PATH = str(Path(_directory.name, "example.org.pem"))  # the certificate and its key
Path(PATH).write_bytes(
    PEM
    + _key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
)
