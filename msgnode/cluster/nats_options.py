"""
The options of the NATS client that the configuration says.
"""

import re
from pathlib import Path

from twisted.internet.ssl import trustRootFromCertificates

from msgnode.config.cluster import ClusterOptions
from msgnode.config.schema import ConfigError
from msgnode.nats.errors import CredentialsError
from msgnode.nats.options import TLS, Options
from msgnode.nats.wire.credentials import Credentials, NKey, Token, UserPassword, parse_credentials
from msgnode.nats.wire.nkeys import KeyPair
from msgnode.transport import pem

MAX_PENDING_BYTES = 2 * 1024 * 1024  # before the links to members hold back what they have
PING_SECONDS = 5.0
_SEED = re.compile(r"^\s*(SU[A-Z2-7]{20,})\s*$", re.MULTILINE)


def nats_options(cluster: ClusterOptions, name: str) -> Options:
    """
    The options of a client that the servers know as `name`. ConfigError names an unusable file.
    """
    try:
        tls = _tls(cluster)
    except pem.PEMError as why:
        raise ConfigError(f"cluster: {why}") from why
    return Options(
        name=name,
        credentials=_credentials(cluster),
        tls=tls,
        echo=False,
        max_pending_bytes=MAX_PENDING_BYTES,
        last_retry_seconds=5.0,
        ping_seconds=PING_SECONDS,
    )


def _tls(cluster: ClusterOptions) -> TLS | None:
    if not (cluster.tls or cluster.tls_first or cluster.ca or cluster.cert):
        return None
    trust = trustRootFromCertificates(pem.authorities(cluster.ca)) if cluster.ca else None
    own = pem.private_certificate(cluster.cert, cluster.key) if cluster.cert else None
    return TLS(trust, own, first=cluster.tls_first)


def _credentials(cluster: ClusterOptions) -> Credentials | None:
    if cluster.user:
        return UserPassword(cluster.user, cluster.password)
    if cluster.token:
        return Token(cluster.token)
    return _from_file(cluster.credentials) if cluster.credentials else None


def _from_file(path: str) -> Credentials:
    """
    The credentials of a `.creds` file, or of one with a line that is the seed of an nkey.
    """
    try:
        text = Path(path).read_text("ascii")
    except OSError as why:
        raise ConfigError(f"cluster.credentials: {path}: cannot be read: {why.strerror}") from why
    except UnicodeDecodeError:
        raise ConfigError(f"cluster.credentials: {path}: expected a .creds file") from None
    try:
        seed = _SEED.search(text)
        if seed is None or "BEGIN" in text:
            return parse_credentials(text)
        KeyPair.from_seed(seed[1])
        return NKey(seed[1])
    except CredentialsError as why:
        raise ConfigError(f"cluster.credentials: {path}: {why}") from None
