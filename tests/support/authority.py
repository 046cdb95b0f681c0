"""
A certificate authority for tests, with keys that never leave its directory.
"""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)


class Authority:
    """
    `path` is its own certificate in PEM.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Test authority")])
        own = self._certificate(self._name, self._key.public_key(), [], authority=True)
        self.path = str(directory / "authority.pem")
        Path(self.path).write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        names: list[x509.GeneralName] | None = None,
        file: str = "",
        until: datetime.timedelta = DAY,
    ) -> str:
        """
        The file of a new certificate for this DNS name, or these others, and its key, in PEM.

        It is valid until so much after now.
        """
        if names is None:
            names = [x509.DNSName(name)]
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)] if name else [])
        certificate = self._certificate(subject, key.public_key(), names, authority=False, until=until)
        path = self._directory / f"{file or name}.pem"
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(path)

    def _certificate(self, subject, public_key, names, authority, until=DAY):
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + until)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())
