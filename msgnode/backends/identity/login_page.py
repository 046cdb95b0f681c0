"""
The login page of a provider, for the code flow with PKCE: no token appears in a URL. And the parameters of
logins that clients send.
"""

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from msgnode.backends.identity.oidc_provider import OIDCProvider
from msgnode.config.schema import IdentityProvider
from msgnode.protocol.errors import Rejected

ASKED = ("code_challenge", "redirect_uri", "state", "nonce", "login_hint", "prompt")
MAX_TEXT_CHARS = 8192  # of a code, a redirected URL or a token that a client gives
MAX_SCOPES = 100


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


def text(params: dict[str, Any], name: str, default: str | None = None) -> str:
    """
    A parameter that is a text. Rejected if it is not, or missing without a default.
    """
    value = params.get(name, default)
    if not isinstance(value, str) or not (value or default == "") or len(value) > MAX_TEXT_CHARS:
        raise Rejected(f"'params.{name}' must be a text of at most {MAX_TEXT_CHARS} characters")
    return value


def scopes_of(params: dict[str, Any], provider: OIDCProvider) -> list[str]:
    """
    The scopes that a client asks for, as `resources`; all that are configured by default.
    """
    asked = params.get("resources")
    if asked in (None, []):
        return list(provider.options.scopes)
    if not isinstance(asked, list) or len(asked) > MAX_SCOPES or not all(isinstance(s, str) for s in asked):
        raise Rejected(f"'params.resources' must be a list of at most {MAX_SCOPES} scopes")
    for scope in asked:
        if scope not in provider.options.scopes:
            raise Rejected(
                f"{scope[:100]!r} is none of the scopes that may be asked for here", 403, "identity"
            )
    return asked


def code_of(params: dict[str, Any], configured: str) -> tuple[str, str]:
    """
    The authorization code, from the URL to which the login page has redirected, and the redirect_uri.
    """
    if "code" in params:
        return text(params, "code"), text(params, "redirect_uri", configured or None)
    login = text(params, "login")
    try:
        parts = urlsplit(login)
        query = parse_qs(parts.query, max_num_fields=50)
    except ValueError:
        raise Rejected("'params.login' must be the URL to which the login page has redirected") from None
    if "error" in query:
        raise Rejected(f"the login failed: {query['error'][0]}"[:200], 401, "token")
    if "code" not in query:
        raise Rejected("'params.login' has no 'code': the URL to which the login page has redirected")
    base = f"{parts.scheme}://{parts.netloc}{parts.path}"
    return query["code"][0], text(params, "redirect_uri", configured or base)
