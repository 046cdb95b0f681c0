"""
Revocation lists: which certificates they refuse, and which lists are refused themselves.
"""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from msgnode.config.loader import check
from msgnode.config.schema import ConfigError
from msgnode.links.trust.anchors import trust_anchors
from msgnode.links.trust.certificates import RevokedCertificate, UntrustedCertificate, pin_of
from msgnode.links.trust.file_watch import FileWatch
from tests.support.authority import DAY, Authority

NAME = "msg-node.b.example"


@pytest.fixture
def theirs(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def others(tmp_path):
    (tmp_path / "others").mkdir()
    return Authority(tmp_path / "others")


def chain_of(path):
    found = x509.load_pem_x509_certificates(Path(path).read_bytes())
    return [each.public_bytes(Encoding.DER) for each in found]


def trust(theirs, crl="", wall=None, federation=None, **peer):
    table = {
        "domain": "a.example",
        "node": "n1",
        "federation": {"cert": "x", **(federation or {})},
        "peer": [{"domain": "b.example", "ca": theirs.path, "crl": crl, **peer}],
    }
    config = check(table, "x")
    return trust_anchors(config) if wall is None else trust_anchors(config, wall)


@pytest.mark.parametrize("file", ["crl.pem", "crl.der"])
@pytest.mark.parametrize("of_peer", [True, False])
def test_a_certificate_on_the_list_is_refused(theirs, file, of_peer):
    """
    A list of the peer, or one of the federation, refuses the certificates on it and no others; PEM or DER.
    """
    bad, good = theirs.issue(NAME), theirs.issue(NAME, file="good")
    crl = theirs.revoke(bad, file=file)
    anchors = trust(theirs, crl) if of_peer else trust(theirs, federation={"crl": crl})

    with pytest.raises(RevokedCertificate, match="was revoked by CN=Test authority"):
        anchors.verify("b.example", chain_of(bad))
    anchors.verify("b.example", chain_of(good))


def test_a_certificate_that_was_accepted_before(theirs):
    """
    A certificate is refused once a new list is in use, although it was verified before.
    """
    cert = theirs.issue(NAME)
    anchors = trust(theirs, theirs.revoke())
    anchors.verify("b.example", chain_of(cert))

    anchors.use(trust(theirs, theirs.revoke(cert)))

    with pytest.raises(RevokedCertificate):
        anchors.verify("b.example", chain_of(cert))


def test_lists_of_several_authorities_in_one_file(theirs, others, tmp_path):
    """
    A file may have several lists; a certificate whose authority has none is not checked.
    """
    bad = theirs.issue(NAME)
    both = tmp_path / "both.pem"
    stranger = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Another")])
    lists = Path(theirs.revoke(bad)).read_bytes()
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(stranger)
        .last_update(datetime.datetime.now(datetime.UTC) - DAY)
        .next_update(datetime.datetime.now(datetime.UTC) + DAY)
    )
    both.write_bytes(Path(others.write_list(made)).read_bytes() + b"\n" + lists)

    with pytest.raises(RevokedCertificate):
        trust(theirs, str(both)).verify("b.example", chain_of(bad))
    only = {"crl": others.write_list(made)}
    trust(theirs, federation=only).verify("b.example", chain_of(bad))


def test_a_list_that_another_signed_is_no_list(theirs, others):
    """
    A list in the name of the authority, by another key, is not its list: where `crl` stands beside `ca`, the
    authority must have one, elsewhere it need not.
    """
    cert, foreign = theirs.issue(NAME), others.revoke()

    with pytest.raises(RevokedCertificate, match="no revocation list is signed by"):
        trust(theirs, foreign).verify("b.example", chain_of(cert))
    with pytest.raises(RevokedCertificate, match="no revocation list is signed by"):
        trust(theirs, federation={"ca": theirs.path, "crl": foreign}, ca="").verify(
            "b.example", chain_of(cert)
        )
    trust(theirs, federation={"ca": others.path, "crl": foreign}).verify("b.example", chain_of(cert))


@pytest.mark.parametrize(
    ("until", "began", "words"), [(-DAY / 2, DAY, "ended at"), (2 * DAY, -DAY, "are the clocks right")]
)
def test_a_list_that_does_not_count_now(theirs, until, began, words):
    """
    While the list of an authority has ended, or begins in the future, its certificates are refused.
    """
    cert, crl = theirs.issue(NAME), theirs.revoke(until=until, began=began)
    anchors = trust(theirs, crl)

    with pytest.raises(RevokedCertificate, match=words):
        anchors.verify("b.example", chain_of(cert))
    assert len(anchors.mistakes()) == (until < datetime.timedelta())


def test_a_list_that_ends_while_the_node_runs(theirs):
    """
    The trust says when the first list ends; from then on nothing is believed that was verified before.
    """
    cert = theirs.issue(NAME, until=10 * DAY)
    now = [datetime.datetime.now(datetime.UTC).timestamp()]
    anchors = trust(theirs, theirs.revoke(until=DAY / 2), lambda: now[0])
    anchors.verify("b.example", chain_of(cert))
    assert now[0] < anchors.lists_end < now[0] + 43_200 + 60

    now[0] = anchors.lists_end
    anchors.forget()

    with pytest.raises(RevokedCertificate, match="ended at"):
        anchors.verify("b.example", chain_of(cert))


@pytest.mark.parametrize(
    ("extension", "words"),
    [
        (x509.DeltaCRLIndicator(1), "delta"),
        (
            x509.IssuingDistributionPoint(
                full_name=None,
                relative_name=None,
                only_contains_user_certs=False,
                only_contains_ca_certs=False,
                only_some_reasons=None,
                indirect_crl=True,
                only_contains_attribute_certs=False,
            ),
            "indirect",
        ),
        (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0"), "critical extension 1.2.3.4"),
    ],
)
def test_lists_that_are_not_supported(theirs, extension, words):
    """
    A list that is only part of one, or has a critical part that is not understood, is refused when read.
    """
    crl = theirs.write_list(theirs.list_builder().add_extension(extension, critical=True))

    with pytest.raises(ConfigError, match=words):
        trust(theirs, crl)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----"]
)
def test_a_file_that_has_no_list(theirs, tmp_path, content):
    """
    A file without a list is refused by name, with its key in the configuration.
    """
    (tmp_path / "x.crl").write_bytes(content)

    with pytest.raises(ConfigError, match=r"peer\[0\]\.crl: .*x\.crl: expected certificate revocation lists"):
        trust(theirs, str(tmp_path / "x.crl"))


def test_too_large_a_file(theirs, tmp_path):
    """
    A file of revocation lists has a bound.
    """
    (tmp_path / "x.crl").write_bytes(b"x" * (8 * 1024 * 1024 + 1))

    with pytest.raises(ConfigError, match="expected at most 8388608 bytes"):
        trust(theirs, str(tmp_path / "x.crl"))


def test_pins_alone_have_no_list(theirs):
    """
    With pins and without an authority there is nothing that a list could be of; the configuration is refused.
    """
    with pytest.raises(ConfigError, match="remove the pin instead"):
        trust(theirs, theirs.revoke(), ca="", pins=["sha256:" + "0" * 64])


def test_a_revoked_certificate_that_is_pinned(theirs):
    """
    A revoked certificate is refused with its pin, too, if the peer has an authority as well.
    """
    cert = theirs.issue(NAME)
    pin = pin_of(x509.load_pem_x509_certificate(Path(cert).read_bytes()))

    with pytest.raises(UntrustedCertificate, match="was revoked"):
        trust(theirs, theirs.revoke(cert), pins=[pin]).verify("b.example", chain_of(cert))


def test_files_that_change(tmp_path):
    """
    A watch sees a file that is written, replaced, removed or added to the paths, each once.
    """
    one, two, watch = tmp_path / "one", tmp_path / "two", FileWatch()
    one.write_bytes(b"1")
    seen = [watch.has_changed([str(one)]), watch.has_changed([str(one)])]
    one.write_bytes(b"12")
    seen += [watch.has_changed([str(one)]), watch.has_changed([str(one)])]
    two.write_bytes(b"34")
    two.replace(one)
    seen += [watch.has_changed([str(one)]), watch.has_changed([str(one), str(two)])]
    one.unlink()
    seen += [watch.has_changed([str(one), str(two)]), watch.has_changed([str(one), str(two)])]

    assert seen == [True, False, True, False, True, True, True, False]
