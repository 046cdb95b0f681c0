"""
The login page of a provider, for the code flow with PKCE: no token appears in a URL.
"""

from typing import Any
from urllib.parse import urlencode

from msgnode.config.schema import IdentityProvider
from msgnode.protocol.errors import Rejected

ASKED = ("code_challenge", "redirect_uri", "state", "nonce", "login_hint", "prompt")


def login_url(document: dict[str, Any], options: IdentityProvider, asked: dict[str, Any]) -> str:
    """
    The URL of the provider's login page with all parameters. Rejected if a parameter is missing.
    """
    endpoint = document.get("authorization_endpoint")
    if not isinstance(endpoint, str) or not endpoint.startswith(("https://", "http://")):
        raise Rejected("the identity provider has no login page", 502)
    query = {
        "response_type": "code",
        "client_id": options.client_id or options.audiences[0],
        "scope": " ".join(options.scopes),
        "code_challenge_method": "S256",
        **{name: asked[name] for name in ASKED if asked.get(name)},
    }
    if options.redirect_uri:
        query["redirect_uri"] = options.redirect_uri
    if "redirect_uri" not in query:
        raise Rejected("'params.redirect_uri' is missing")
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
