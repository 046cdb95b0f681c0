"""
Where a client is told to connect: the URLs it understands, and what it says of the others.
"""

from pathlib import Path

import pytest
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.testing import MemoryReactorClock

from msgnode.client.endpoint import LineFactory, make_endpoint
from tests.support.certificate import PATH


@pytest.mark.parametrize(
    "url", ["tcp://example.org", "tls://example.org:1", "ws://example.org", "wss://[::1]/x"]
)
def test_endpoint_urls_need_no_more_than_a_host(url: str) -> None:
    """
    Lines and WebSocket, with TLS and without, need no more than a host.
    """
    made = make_endpoint(url, MemoryReactorClock())

    lines = url.startswith("t")
    assert lines == (made.factory is LineFactory)
    assert isinstance(made.endpoint, HostnameEndpoint) != url.startswith(("wss", "tls"))


def test_unix_socket_endpoint_is_lines() -> None:
    """
    A UNIX socket is spoken to in lines.
    """
    made = make_endpoint("unix:///run/msgnode.sock", MemoryReactorClock())

    assert isinstance(made.endpoint, UNIXClientEndpoint)
    assert made.factory is LineFactory


@pytest.mark.parametrize("url", ["", "localhost:9090", "http://", "ws://", "tcp://localhost:x"])
def test_endpoint_that_is_no_url_is_refused_with_an_example(url: str) -> None:
    """
    What is no URL of a node is refused, with one that is.
    """
    with pytest.raises(ValueError, match=r"expected a URL such as ws://127.0.0.1:9090/ws or tcp://"):
        make_endpoint(url, MemoryReactorClock())


@pytest.mark.parametrize(
    "url, meant",
    [
        ("http://example.org:9090/ws", "ws://example.org:9090/ws"),
        ("HTTPS://example.org/node/ws/?x=1", "wss://example.org/node/ws"),
    ],
)
def test_http_url_of_the_websocket_is_told_the_right_one(url: str, meant: str) -> None:
    """
    A URL of HTTP with the path of the WebSocket is refused with the URL of the WebSocket.
    """
    with pytest.raises(ValueError, match=rf"not '.*'; did you mean {meant}\?$"):
        make_endpoint(url, MemoryReactorClock())
    make_endpoint(meant, MemoryReactorClock())


def test_unusable_client_certificate_file_is_named(tmp_path: Path) -> None:
    """
    A file that cannot be used is named, with what was expected in it.
    """
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("hello")
    reactor = MemoryReactorClock()

    make_endpoint("tls://example.org", reactor, ca=PATH, certificate=PATH)
    with pytest.raises(ValueError, match=r"wrong.pem: expected certificates in PEM"):
        make_endpoint("tls://example.org", reactor, ca=str(wrong))
    with pytest.raises(ValueError, match=r"wrong.pem: expected a certificate and its key in PEM"):
        make_endpoint("tls://example.org", reactor, certificate=str(wrong))
    with pytest.raises(ValueError, match=r"/nowhere: cannot be read: No such file"):
        make_endpoint("tls://example.org", reactor, ca="/nowhere")
