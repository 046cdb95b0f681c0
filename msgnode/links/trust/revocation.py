"""
Certificate revocation lists (CRL, RFC 5280) from files of the operator.

A list counts for the certificates of its issuer, if the issuer has signed it. It must not have ended: a list
that is not renewed is no proof that nothing was revoked.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from msgnode.structures.bounded_cache import BoundedCache
from msgnode.transport import pem

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_LISTS = 64  # in one file
MAX_REMEMBERED = 1024  # signatures of lists that were verified
_BLOCK = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


class Revoked(Exception):
    """
    A certificate is on a list of its issuer, or the list cannot be used. The text says so, for operators.
    """


class RevocationLists:
    """
    The lists of any number of issuers. `ends` is when the first of them ends, in seconds since 1970.
    """

    def __init__(self, lists: Iterable[x509.CertificateRevocationList] = ()) -> None:
        self._by_issuer: dict[x509.Name, list[x509.CertificateRevocationList]] = {}
        self._signed: BoundedCache[tuple[int, bytes], bool] = BoundedCache(MAX_REMEMBERED)
        self._lists = list(lists)
        for each in self._lists:
            self._by_issuer.setdefault(each.issuer, []).append(each)
        self.ends = min((_end(each) for each in self._lists), default=float("inf"))

    def __len__(self) -> int:
        return len(self._lists)

    def and_those(self, other: "RevocationLists") -> "RevocationLists":
        """
        These lists and the others.
        """
        return RevocationLists([*self._lists, *other._lists])

    def ended(self, now: float) -> list[str]:
        """
        The issuers of lists that have ended.
        """
        return [each.issuer.rfc4514_string()[:100] for each in self._lists if _end(each) <= now]

    def check(self, chain: Sequence[x509.Certificate], now: float, is_needed: bool) -> None:
        """
        Raises Revoked if a certificate of a verified chain, the node's own first, is revoked.

        `is_needed`: there must be a list of the authority that issued the node's certificate.
        """
        for certificate, issuer in pairwise(chain):
            lists = self._by_issuer.get(certificate.issuer, ())
            signed = [each for each in lists if self._is_signed(each, issuer)]
            if signed:
                _check(certificate, issuer, signed, now)
            elif is_needed and certificate is chain[0]:
                raise Revoked(f"no revocation list is signed by {issuer.subject.rfc4514_string()[:100]}")

    def _is_signed(self, found: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
        public = issuer.public_key()
        key = id(found), public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        known = self._signed.get(key)
        if known is None:
            try:
                known = found.is_signature_valid(public)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                known = False
            self._signed.put(key, known)
        return known


def _check(
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    lists: Sequence[x509.CertificateRevocationList],
    now: float,
) -> None:
    name = issuer.subject.rfc4514_string()[:100]
    for each in lists:
        entry = each.get_revoked_certificate_by_serial_number(certificate.serial_number)
        if entry is not None:
            subject = certificate.subject.rfc4514_string()[:100]
            when = f"{entry.revocation_date_utc:%Y-%m-%d %H:%M}"
            raise Revoked(f"the certificate of {subject} was revoked by {name} at {when} UTC")
    newest = max(lists, key=lambda each: each.last_update_utc)
    if newest.last_update_utc.timestamp() > now:
        when = f"{newest.last_update_utc:%Y-%m-%d %H:%M}"
        raise Revoked(f"the revocation list of {name} begins at {when} UTC; are the clocks right?")
    if _end(newest) <= now:
        raise Revoked(f"the revocation list of {name} ended at {newest.next_update_utc:%Y-%m-%d %H:%M} UTC")


def read_lists(path: str) -> RevocationLists:
    """
    The lists in a file: any number in PEM, or one in DER. PEMError if it cannot be used.
    """
    data = pem.read(path)
    if len(data) > MAX_FILE_BYTES:
        raise pem.PEMError(f"{path}: expected at most {MAX_FILE_BYTES} bytes, found {len(data)}")
    blocks = _BLOCK.findall(data)
    if len(blocks) > MAX_LISTS:
        raise pem.PEMError(f"{path}: expected at most {MAX_LISTS} revocation lists, found {len(blocks)}")
    try:
        found = [x509.load_pem_x509_crl(each) for each in blocks] or [x509.load_der_x509_crl(data)]
        for each in found:
            _check_kind(each)
    except (ValueError, TypeError) as why:
        raise pem.PEMError(
            f"{path}: expected certificate revocation lists in PEM or DER: {why}"[:300]
        ) from why
    return RevocationLists(found)


def _check_kind(found: x509.CertificateRevocationList) -> None:
    """
    ValueError for a list that is only part of one, or has certificates of other issuers.
    """
    for each in found.extensions:
        if isinstance(each.value, x509.DeltaCRLIndicator):
            raise ValueError("a delta list is not supported")
        if isinstance(each.value, x509.IssuingDistributionPoint):
            if each.value.indirect_crl or each.value.only_some_reasons:
                raise ValueError("an indirect list, or one for some reasons only, is not supported")
        elif each.critical:
            raise ValueError(f"the critical extension {each.oid.dotted_string} is not supported")


def _end(found: x509.CertificateRevocationList) -> float:
    end = found.next_update_utc
    return float("inf") if end is None else end.timestamp()
