"""
Make a certificate authority and certificates of nodes, to try links between nodes with. The directory then
has ca.pem, ca.key, and DOMAIN.pem and DOMAIN.key for each domain. Two owners have two directories.

With --revoke, make or renew ca.crl, the list of revoked certificates, and add those of these domains to it.
"""

import argparse
import re
import sys
from pathlib import Path

from node_pki.authority import DirectoryAuthority, Unusable

NODE_DAYS = 397
LIST_DAYS = 30
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?")


def main(arguments: list[str]) -> int:
    """
    Exit code 0; 1 if a file cannot be used; 2 if the arguments are wrong.
    """
    parser = argparse.ArgumentParser(prog="tools/pki", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("domains", nargs="*", metavar="DOMAIN", help="such as a.example")
    parser.add_argument(
        "--days", type=int, help=f"of a certificate (default {NODE_DAYS}) or of the list ({LIST_DAYS})"
    )
    parser.add_argument(
        "--revoke", action="store_true", help="renew the list, with the certificates of DOMAIN..."
    )
    parser.add_argument("--again", action="store_true", help="replace certificates that are there")
    given = parser.parse_intermixed_args(arguments)
    for domain in given.domains:
        if not _DOMAIN.fullmatch(domain):
            parser.error(f"expected a domain such as a.example, in lower case, found {domain!r}")
    if not given.domains and not given.revoke:
        parser.error("expected a domain such as a.example")
    days = given.days if given.days is not None else LIST_DAYS if given.revoke else NODE_DAYS
    if days < 1:
        parser.error(f"expected one day or more, found {days}")
    try:
        authority = DirectoryAuthority(given.directory)
        print(f"{'made' if authority.is_new else 'used'} the authority {authority.path}")
        if given.revoke:
            print(f"made the list {authority.revoke(given.domains, days)}, which ends in {days} days")
            return 0
        for domain in given.domains:
            cert, key = authority.issue(domain, days, given.again)
            print(_section(domain, cert, key, authority.path))
    except Unusable as why:
        print(f"tools/pki: {why}", file=sys.stderr)
        return 1
    return 0


def _section(domain: str, cert: Path, key: Path, ca: Path) -> str:
    """
    What the configuration of the node, and of its peers, has to say.
    """
    return (
        f"\n# The node of {domain}\n"
        f'domain = "{domain}"\n'
        "[federation]\n"
        f'listen = "tcp:9093"\ncert = "{cert}"\nkey = "{key}"\n'
        f"\n# In the files of its peers: this domain as a peer\n"
        "[[peer]]\n"
        f'domain = "{domain}"\nurl = "wss://HOST:9093/link"\nca = "{ca}"'
    )
