"""
The sections about foreign stubs: what is refused, in words.
"""

import pytest

from msgnode.config.loader import check
from msgnode.config.schema import ConfigError

STUB = {"domain": "b.example"}


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"foreign": {"accept": "all"}}, "foreign.accept: expected 'none', 'listed' or 'any', found 'all'"),
        ({"foreign": {"accept": "listed"}}, "foreign.accept: expected [[foreign.stub]] tables with 'listed'"),
        ({"foreign": {"stub": [{"domain": "B.example"}]}}, "expected a domain name such as b.example"),
        ({"foreign": {"stub": [{"domain": "a.example"}]}}, "which is this node's own"),
        ({"foreign": {"stub": [STUB, STUB]}}, "foreign.stub[1].domain: expected each domain once"),
        ({"foreign": {"stub": [{**STUB, "digest": "md5:1"}]}}, "foreign.stub[0].digest: expected sha256:"),
        ({"foreign": {"stub": [{**STUB, "url": "http://b.example/x.ps.js"}]}}, "expected an https URL"),
        ({"foreign": {"stub": [{**STUB, "url": "https://b.example/x.js"}]}}, "that ends .ps.js"),
        ({"foreign": {"stub": [{**STUB, "hosts": ["b.example"]}]}}, "expected places such as"),
        ({"foreign": {"hosts": ["b.example:70000"]}}, "foreign.hosts: expected places such as"),
        ({"foreign": {"memory_bytes": 1000}}, "foreign.memory_bytes"),
        ({"foreign": {"queue_bytes": 1000}}, "expected at least foreign.message_bytes"),
        ({"connectors": {"qos": {"stub": "b.example"}}}, "connectors.qos.stub: expected the domain of a"),
        ({"connectors": {"policy": {"stub": "b.example"}}}, "connectors"),
    ],
)
def test_mistakes_are_told(sections, text):
    """
    A mistake is told with the key, what was expected and what was found.
    """
    with pytest.raises(ConfigError) as raised:
        check({"domain": "a.example", **sections}, "node.toml")

    assert text in str(raised.value)


def test_stub_of_a_linked_domain_is_refused():
    """
    A domain has either a [[peer]] or a stub.
    """
    table = {
        "domain": "a.example",
        "node": "n",
        "federation": {"cert": "node.pem"},
        "peer": [STUB],
        "foreign": {"stub": [STUB]},
    }

    with pytest.raises(ConfigError, match=r"expected a domain without a \[\[peer\]\]"):
        check(table, "node.toml")
