"""
Requests to the domain registry: a message becomes calls of the registry's HTTP API.

Runtimes of all versions write the same request in many ways. Everything here is a pure function.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from msgnode.backends.registry.record_fields import LISTS, OBJECT_UPDATABLE, UPDATABLE, bounded, fields, texts
from msgnode.protocol.address import MAX_ADDRESS_CHARS
from msgnode.protocol.errors import Rejected

HYPERTIES = ("hyperty", "hyperty-runtime", "runtime")  # schemes of addresses that are registered as hyperties
REQUIRED = {
    True: ("expires", "dataSchemes", "resources", "runtime", "status", "descriptor"),
    False: ("schema", "name", "reporter", "resources", "dataSchemes", "status", "expires", "runtime"),
}
EXPIRES_SECONDS = 3600  # default, in seconds

_SEARCH = re.compile(r"/([^/]+)/(user|idp-identifier|guid|url|name|reporter)/(.+)", re.DOTALL)
_PART = re.compile(r"/([^/]+)/(.+)", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# The search keywords of messages, and those of the registry.
_BY = {"user": "user", "idp-identifier": "email", "guid": "guid"}


class Call(NamedTuple):
    """
    A call of the registry: `url` is the address it is about, `body` what is written.

    `filter` is a search that the registry does not support, applied to its response. `payer` is the owner of
    the entry, as far as the node knows.
    """

    method: str
    path: str
    body: dict[str, Any] | None = None
    url: str = ""
    filter: dict[str, list[str]] | None = None
    payer: str = ""


def is_hyperty(url: str) -> bool:
    """
    Is the address registered as a hyperty? Otherwise it is a data object.
    """
    return _scheme(url) in HYPERTIES


def path(*pieces: str) -> str:
    """
    A path in which each piece is one encoded segment. Rejected if a piece would lead elsewhere.
    """
    if not {"", ".", ".."}.isdisjoint(pieces):
        raise Rejected("a name must not be empty, '.' or '..'")
    return "/" + "/".join(map(encoded, pieces))


def encoded(text: str) -> str:
    """
    Percent-encode like encodeURIComponent. Rejected (413) if the text is longer than an address may be.
    """
    if len(text) > MAX_ADDRESS_CHARS:
        raise Rejected(
            f"an address or a name has at most {MAX_ADDRESS_CHARS} characters, not {len(text)}",
            413,
            "too-long",
        )
    return quote(text, safe="-_.!~*'()", errors="replace")


# -- reading ---------------------------------------------------------------------


def reads(body: Mapping[str, Any], domain: str) -> list[Call]:
    """
    The calls for a read. A second call is made only if the first finds nothing.
    """
    criteria = body.get("criteria")
    if not isinstance(criteria, dict):
        criteria = {}
    lists = {name: values for name in LISTS if (values := _listed(criteria, name))}
    reporter = criteria.get("reporter")
    if isinstance(reporter, str) and reporter:
        return [_search("dataobject/reporter", reporter, lists)]
    resource = body.get("resource")
    if not isinstance(resource, str) or not resource:
        raise Rejected("name what to find in 'resource'")
    found = _SEARCH.fullmatch(resource)
    if found:
        return [_by_keyword(found[2], found[3], lists)]
    return _by_address(address_of(resource, domain) or resource, lists)


def _by_keyword(keyword: str, value: str, lists: dict[str, list[str]]) -> Call:
    if keyword in _BY:
        return _search(_BY[keyword], value, lists)
    if keyword == "url":
        return by_url(value)
    return _search(f"dataobject/{keyword}", value, lists)


def _by_address(resource: str, lists: dict[str, list[str]]) -> list[Call]:
    scheme = _scheme(resource)
    if scheme == "user":
        return [_search("user", resource, lists)]
    if scheme == "user-guid":
        return [_search("guid", resource, lists)]
    if scheme.lower() == "dataobject":
        return [_search("dataobject/name", resource.partition("://")[2], lists)]
    if scheme:
        return [by_url(resource)]
    by_name = _search("dataobject/name", _identifier(resource), lists)
    return [_search("email", resource, lists), by_name] if "@" in resource else [by_name]


def by_url(url: str) -> Call:
    """
    The call that reads one record.
    """
    place = ("hyperty", "url") if is_hyperty(url) else ("hyperty", "dataobject", "url")
    return Call("GET", path(*place, url))


def by_name(name: str) -> Call:
    """
    The call that reads the data objects of a name.
    """
    return _search("dataobject/name", name, {})


def _search(by: str, value: str, lists: dict[str, list[str]]) -> Call:
    found = f"/hyperty/{by}{path(value)}"
    if not lists:
        return Call("GET", found)
    if by == "guid":  # the registry cannot filter here
        return Call("GET", found, filter=lists)
    query = "&".join(f"{name}={','.join(map(encoded, values))}" for name, values in lists.items())
    return Call("GET", f"{found}/{'do' if by.startswith('dataobject') else 'hyperty'}?{query}")


def fits(record: Any, wanted: Mapping[str, list[str]]) -> bool:
    """
    Has this record every wanted value, in both lists?
    """
    return isinstance(record, dict) and all(
        set(texts(record.get(name))).issuperset(values) for name, values in wanted.items()
    )


# -- writing ---------------------------------------------------------------------


def create(body: Mapping[str, Any], from_: str, runtime: str) -> Call:
    """
    The call that registers what `value` describes. Fields that older runtimes omit get defaults.
    """
    value = _object(body)
    url = _needed(value, "url", "hypertyURL")
    given = {name: field for name, field in value.items() if field is not None}
    if "hypertyDescriptorURL" in given:
        given.setdefault("descriptor", given["hypertyDescriptorURL"])
    given.setdefault("status", "live")
    given.setdefault("expires", EXPIRES_SECONDS)
    given.setdefault("runtime", _runtime(from_, runtime))
    for name in LISTS:
        if isinstance(given.get(name, ""), str):  # missing, or a single text
            given[name] = texts(given.get(name))
    if is_hyperty(url):
        user = _needed(value, "user")
        if not user.strip("/"):  # the registry would store it, and fail later
            raise Rejected(f"'value.user' must name a user, not {user!r}"[:200])
        found = fields(given, (*UPDATABLE, "guid"))
        return Call("PUT", path("hyperty", "user", user, url), found, url)
    if given["dataSchemes"] == [] and _scheme(url):
        given["dataSchemes"] = [_scheme(url)]
    return Call("PUT", path("hyperty", "dataobject", url), fields(given, OBJECT_UPDATABLE), url)


def update(body: Mapping[str, Any], domain: str) -> Call:
    """
    The call that changes a record, or keeps it alive.
    """
    resource = body.get("resource")
    url = address_of(resource, domain) if isinstance(resource, str) else None
    if url is None or not _scheme(url):
        raise Rejected(f"name the address to update in 'resource', not {resource!r}"[:200])
    return write(url, _changes(body, UPDATABLE if is_hyperty(url) else OBJECT_UPDATABLE))


def write(url: str, changes: dict[str, Any]) -> Call:
    """
    The call that writes fields of a record; without fields, it keeps the record alive.
    """
    place = path("hyperty", "url", url) if is_hyperty(url) else path("dataobject", "url", url)
    return Call("PUT", place, changes, url)


def _changes(body: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    value, attribute = body.get("value"), body.get("attribute")
    is_whole = isinstance(value, dict) and (not value or not value.keys().isdisjoint(known))
    if isinstance(attribute, str) and value is not None and not is_whole:
        if attribute not in known:
            raise Rejected(f"'attribute' must be one of {', '.join(known)}, not {attribute!r}"[:300])
        return fields({attribute: value}, known, "")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Rejected(f"'value' must be an object, or come with an 'attribute', not {value!r}"[:200])
    return fields(value, known)


def delete(body: Mapping[str, Any]) -> tuple[Call | None, str]:
    """
    The call that removes a registration; or None and the name of a data object.

    The registry cannot delete data objects, so they are disconnected.
    """
    value = body.get("value")
    if not isinstance(value, dict):
        value = {"url": body.get("resource")}
    url = value.get("url") or value.get("hypertyURL")
    name = value.get("name")
    if isinstance(url, str) and url:
        user = value.get("user")
        if is_hyperty(url) and isinstance(user, str) and user:
            return Call("DELETE", path("hyperty", "user", user, url), url=url), ""
        return write(url, {"status": "disconnected"}), ""
    if isinstance(name, str) and name:
        return None, name
    raise Rejected("name what to delete in 'value.url', or a data object in 'value.name'")


def missing(call: Call) -> list[str]:
    """
    The required fields that a create lacks.
    """
    return [name for name in REQUIRED[is_hyperty(call.url)] if name not in (call.body or ())]


# -- texts and addresses ----------------------------------------------------------


def address_of(resource: str, domain: str) -> str | None:
    """
    The address that a resource names: itself, or in `/hyperty/<address>`, or `/<scheme>/<identifier>` of this
    domain.

    None for `/dataObject/<name>`, and if there is no scheme.
    """
    match = _PART.fullmatch(resource)
    if match is None:
        return resource if _scheme(resource) else None
    word, rest = match[1], match[2]
    if _SCHEME.match(rest):
        return rest
    return None if word.lower() == "dataobject" else f"{word}://{domain}/{rest}"


def _identifier(resource: str) -> str:
    match = _PART.fullmatch(resource)
    return match[2] if match else resource


def _scheme(url: str) -> str:
    match = _SCHEME.match(url)
    return match[1] if match else ""


def _runtime(from_: str, runtime: str) -> str:
    stripped = from_.removesuffix("/").removesuffix("/registry")
    return stripped if stripped != from_.removesuffix("/") else runtime


def _listed(asked: Mapping[str, Any], name: str) -> list[str]:
    """
    The values that a request lists. They are compared with those of every record, so their number is bounded.
    """
    return bounded(texts(asked.get(name)), name)


def _object(body: Mapping[str, Any]) -> dict[str, Any]:
    value = body.get("value")
    if not isinstance(value, dict):
        raise Rejected("describe what to register in an object 'value'")
    return value


def _needed(value: Mapping[str, Any], *names: str) -> str:
    for name in names:
        found = value.get(name)
        if isinstance(found, str) and found:
            return found
    raise Rejected(f"'value.{names[0]}' must be a text that is not empty, not {value.get(names[0])!r}"[:200])
