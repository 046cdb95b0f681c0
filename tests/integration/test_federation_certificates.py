"""
Two real nodes, one of which proves its domain badly: it gets no link, and the other one says why.
"""

import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.authority import DAY, Authority

from .federated import Domain, Domains
from .process import Lines

ANN, BOB = "runtime://a.example/ann", "runtime://b.example/bob"
TRIES_SECONDS = 3.0  # in which both nodes dial again and again


def expired(directory: Path, authority: Authority, b: Domain) -> list[str]:
    b.cert = b.key = Path(authority.issue("msg-node.b.example", until=-DAY / 24))
    return []


def foreign(directory: Path, authority: Authority, b: Domain) -> list[str]:
    (directory / "foreign").mkdir()
    b.cert = b.key = Path(Authority(directory / "foreign").issue("msg-node.b.example"))
    return []


def of_another_domain(directory: Path, authority: Authority, b: Domain) -> list[str]:
    b.cert = b.key = Path(authority.issue("msg-node.c.example"))
    return []


def revoked(directory: Path, authority: Authority, b: Domain) -> list[str]:
    b.cert = b.key = Path(authority.issue("msg-node.b.example"))
    return [f'crl = "{authority.revoke(str(b.cert))}"']


def under_an_ended_list(directory: Path, authority: Authority, b: Domain) -> list[str]:
    b.cert = b.key = Path(authority.issue("msg-node.b.example"))
    return [f'crl = "{authority.revoke(until=-DAY / 24)}"']


def with_an_unknown_key(directory: Path, authority: Authority, b: Domain) -> list[str]:
    b.cert = b.key = Path(authority.issue("msg-node.b.example"))
    return [f'pins = ["sha256:{"0" * 64}"]']


CASES = {
    "expired at": expired,
    "no authority that is trusted for b.example vouches for the certificate": foreign,
    "names msg-node.c.example; expected msg-node.b.example": of_another_domain,
    "was revoked by": revoked,
    "the revocation list of": under_an_ended_list,
    "pin": with_an_unknown_key,
}


def gauges(node: Domain, name: str) -> dict[str, float]:
    """
    The lines of a metric, by labels.
    """
    with urlopen(f"http://127.0.0.1:{node.admin}/metrics") as page:
        lines = page.read().decode().splitlines()
    found = (line.removeprefix(name).rsplit(" ", 1) for line in lines if line.startswith(name + "{"))
    return {labels: float(value) for labels, value in found}


@pytest.mark.parametrize("why", CASES)
def test_a_certificate_that_proves_nothing(why: str, tmp_path: Path) -> None:
    """
    A node whose certificate is expired, revoked, foreign, of another domain or of an unknown key gets no
    link. The other node logs why once, counts it, and its senders are answered.
    """
    found = Domains(2)
    a, b = found.all
    authority = Authority(tmp_path)
    b.authority.path = Path(authority.path)
    keys = CASES[why](tmp_path, authority, b)
    a.configure({b: keys})
    b.configure({a: []})
    try:
        b.start()
        a.start()
        assert a.process is not None
        a.process.read_until("link with ")
        time.sleep(TRIES_SECONDS)

        ann = Lines(a.lines, ANN)
        answer = ann.ask({"id": 1, "type": "read", "from": ANN, "to": BOB})
        ann.close()
        up = {labels: value for labels, value in gauges(a, "msgnode_links").items() if 'state="up"' in labels}
        faults = sum(gauges(a, "msgnode_peer_faults_total").values())
        a.stop()
        lines = a.process.said.splitlines()
        # The first try may be before the other node listens.
        said = [
            line.partition("link with ")[2]
            for line in lines
            if "link with" in line and "cannot connect" not in line
        ]

        assert (answer["body"]["code"], answer["body"]["reason"]) == (502, "no-path")
        assert set(up.values()) == {0.0}
        assert faults > 0
        assert said and all(why in each for each in said), said
        assert len(said) == len(set(said)) <= 2  # one line for each side that dials
    finally:
        found.stop()
