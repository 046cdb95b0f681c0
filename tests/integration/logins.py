"""
What an application and a browser do to log in: at a provider, and then at a node.
"""

import json
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPErrorProcessor, Request, build_opener

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.sessions.access.test_identity_expiry import encoded

# RFC 7636, appendix B.
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


class _Stay(HTTPErrorProcessor):
    """
    Follows no redirect, and takes an error for an answer.
    """

    def http_response(self, request: Any, response: Any) -> Any:
        return response


def post(url: str, **form: str) -> Any:
    return build_opener(_Stay).open(Request(url, urlencode(form).encode()), timeout=10)


def log_in(page: str, provider: int) -> dict[str, Any]:
    """
    Log in as ann on that page of the provider at this port, and fetch the tokens.
    """
    back = post(page, sub="ann").headers["Location"]
    answer = post(
        f"http://localhost:{provider}/oauth2/token",
        grant_type="authorization_code",
        code=parse_qs(urlsplit(back).query)["code"][0],
        redirect_uri="http://localhost/done",
        client_id="app",
        client_secret="any",
        code_verifier=VERIFIER,
    )
    tokens: dict[str, Any] = json.load(answer)
    return tokens


def open_with(token: str, port: int) -> tuple[int, str]:
    """
    Open a session as a browser does, and ask who it is: a code, and the user or the reason.
    """
    runtime, idm = "runtime://localhost/ann", "domain://msg-node.localhost/idm"
    with connect(f"ws://127.0.0.1:{port}/ws", subprotocols=["msgnode", encoded(token)]) as client:
        assert "msgnode" == client.subprotocol
        client.send(json.dumps({"id": 1, "type": "open", "from": runtime, "to": "mn:/session"}))
        who = {"id": 2, "type": "read", "from": runtime, "to": idm, "body": {"resource": "/identity"}}
        client.send(json.dumps(who))
        try:
            opened, profile = (json.loads(client.recv(10)) for _ in range(2))
        except ConnectionClosed as why:
            return why.rcvd.code, why.rcvd.reason
        return opened["body"]["code"], profile["body"]["value"]["userURL"]
