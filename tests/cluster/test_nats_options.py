"""
The options of the NATS client that the configuration says.
"""

from pathlib import Path

import pytest

from msgnode.cluster.nats_options import nats_options
from msgnode.config.cluster import ClusterOptions
from msgnode.config.schema import ConfigError
from msgnode.nats.wire.credentials import JWT, NKey, Token, UserPassword
from tests.support.nats_jwt import Operator, creds_file, new_key


def test_ways_to_prove_itself(tmp_path: Path) -> None:
    """
    A user with a password, a token, a file with the seed of an nkey, or a .creds file prove the node.
    """
    seed, jwt = tmp_path / "n1.nk", tmp_path / "n1.creds"
    seed.write_text(f"{new_key('user').seed}\n")
    jwt.write_text(creds_file(Operator().user()))

    found = [
        nats_options(ClusterOptions(**each), "n1").credentials
        for each in (
            {"user": "me", "password": "secret"},
            {"token": "t"},
            {"credentials": str(seed)},
            {"credentials": str(jwt)},
        )
    ]

    assert [UserPassword("me", "secret"), Token("t"), NKey(seed.read_text().strip())] == found[:3]
    assert isinstance(found[3], JWT)


def test_unusable_files(tmp_path: Path) -> None:
    """
    A file that is missing, or has no credentials, is an error that names it.
    """
    empty = tmp_path / "empty"
    empty.write_text("nothing\n")

    for cluster, words in (
        ({"credentials": "/nowhere"}, "cluster.credentials: /nowhere: cannot be read"),
        ({"credentials": str(empty)}, f"cluster.credentials: {empty}: expected credentials with a block"),
        ({"ca": "/nowhere"}, "cluster: /nowhere: cannot be read"),
    ):
        with pytest.raises(ConfigError) as raised:
            nats_options(ClusterOptions(**cluster), "n1")
        assert words in str(raised.value)
