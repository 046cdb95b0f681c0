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

    def revoke(
        self,
        *paths: str,
        file: str = "crl.pem",
        until: datetime.timedelta = DAY,
        began: datetime.timedelta = DAY,
    ) -> str:
        """
        The file of a new revocation list with the certificates in these files.
        """
        builder = self.list_builder(until, began)
        for path in paths:
            serial = x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial)
            builder = builder.add_revoked_certificate(
                revoked.revocation_date(datetime.datetime.now()).build()
            )
        return self.write_list(builder, file)

    def list_builder(
        self, until: datetime.timedelta = DAY, began: datetime.timedelta = DAY
    ) -> x509.CertificateRevocationListBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        return builder.last_update(now - began).next_update(now + until)

    def write_list(self, builder: x509.CertificateRevocationListBuilder, file: str = "crl.pem") -> str:
        path = self._directory / file
        encoding = serialization.Encoding.DER if file.endswith(".der") else serialization.Encoding.PEM
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(encoding))
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
