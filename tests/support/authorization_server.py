"""
A small authorization server: an OpenID provider that also issues, refreshes, exchanges and revokes tokens.
"""

import json
from secrets import token_urlsafe
from typing import Any

from twisted.web.server import Request

from tests.support.openid import OpenID

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


class AuthorizationServer(OpenID):
    """
    `codes` are authorization codes by their verifier, `refreshing` the refresh tokens that are valid.

    `device` is what it answers about the device login: an error, or "ann" when she has logged in.
    """

    def __init__(self, *what: Any, **how: Any) -> None:
        super().__init__(*what, **how)
        self.codes: dict[str, str] = {}
        self.refreshing: set[str] = set()
        self.device = "authorization_pending"
        self.error: tuple[int, str] | None = None  # in place of any tokens
        self.revoked: list[str] = []
        self.token_forms: list[dict[str, str]] = []
        self.gives_id_tokens = True
        self.rotates = True
        self.signs_nonce = True
        self.metadata |= {
            "token_endpoint": f"{self.issuer}/token",
            "device_authorization_endpoint": f"{self.issuer}/device",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "grant_types_supported": ["authorization_code", "refresh_token", DEVICE, EXCHANGE],
        }

    def render(self, request: Request) -> bytes | int:
        path = request.path.decode()
        if request.method != b"POST" or path not in ("/token", "/device", "/revoke"):
            return super().render(request)
        self.asked[path] = self.asked.get(path, 0) + 1
        form = {name.decode(): values[0].decode() for name, values in request.args.items()}
        self.token_forms.append(form)
        request.setHeader(b"Content-Type", b"application/json")
        answer = self._error(request) if self.error else getattr(self, f"_{path[1:]}")(form)
        if "error" in answer:
            request.setResponseCode(self.error[0] if self.error else 400)
        return json.dumps(answer).encode()

    def _error(self, request: Request) -> dict[str, Any]:
        assert self.error is not None
        return {"error": self.error[1], "error_description": "about rt-secret"}

    def _device(self, form: dict[str, str]) -> dict[str, Any]:
        return {
            "device_code": "dc-secret",
            "user_code": "WDJB-MJHT",
            "verification_uri": f"{self.issuer}/device",
            "verification_uri_complete": f"{self.issuer}/device?user_code=WDJB-MJHT",
            "expires_in": 600,
            "interval": 5,
        }

    def _revoke(self, form: dict[str, str]) -> dict[str, Any]:
        self.revoked.append(form["token"])
        self.refreshing.discard(form["token"])
        return {}

    def _token(self, form: dict[str, str]) -> dict[str, Any]:
        grant = form["grant_type"]
        if grant == DEVICE:
            return self._tokens(form) if self.device == "ann" else {"error": self.device}
        if grant == "authorization_code":
            known = self.codes.pop(form["code"], None) == form["code_verifier"]
            return self._tokens(form) if known else {"error": "invalid_grant"}
        if grant == "refresh_token":
            if form["refresh_token"] not in self.refreshing:
                return {"error": "invalid_grant"}
            if self.rotates:
                self.refreshing.discard(form["refresh_token"])
            return self._tokens(form)
        nonce = form.get("nonce") if self.signs_nonce else None
        kind = "urn:ietf:params:oauth:token-type:id_token"
        return {"access_token": self.token(nonce=nonce), "issued_token_type": kind, "token_type": "N_A"}

    def _tokens(self, form: dict[str, str]) -> dict[str, Any]:
        made = {"access_token": f"at-{token_urlsafe(8)}", "token_type": "Bearer", "expires_in": 300}
        if self.gives_id_tokens:
            made["id_token"] = self.token()
        if self.rotates or form["grant_type"] != "refresh_token":
            made["refresh_token"] = f"rt-secret-{token_urlsafe(8)}"
            self.refreshing.add(made["refresh_token"])
        return made
