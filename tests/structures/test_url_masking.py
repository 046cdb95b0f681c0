"""
URLs without passwords.
"""

import pytest

from msgnode.structures.url_masking import masked


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://ann:hush@h:4222", "nats://***@h:4222"),
        ("tls://hush@h:4222", "tls://***@h:4222"),
        ("https://ann:hush@h/of/a@b", "https://***@h/of/a@b"),
        ("https://ann:hu@sh@h/", "https://***@h/"),
        ("nats://ann:hu/sh@h:1", "nats://***@h:1"),
        (
            "https://h/policies?access_token=hush&page=2#key=hush",
            "https://h/policies?access_token=***&page=2#key=***",
        ),
        ("https://[::1]:8443/a@b", "https://[::1]:8443/a@b"),
        ("https://h:8443/a@b?page=2", "https://h:8443/a@b?page=2"),
        ("user://example.org/ann@example.org", "user://example.org/ann@example.org"),
        ("ann:hush@h", "ann:hush@h"),
        ("", ""),
    ],
)
def test_secrets_are_hidden_and_all_else_stays(url: str, shown: str) -> None:
    """
    Users, passwords, and parameters that are named like secrets.
    """
    assert shown == masked(url)
