"""
Parts of OpenAPI documents that are made from types.
"""

from collections.abc import Iterable
from typing import Any

import msgspec


class Error(msgspec.Struct):
    """
    An error: its code, its text, and its reason, a stable word.
    """

    code: int
    desc: str
    description: str
    reason: str = ""


def components(kinds: Iterable[Any]) -> tuple[dict[int, Any], dict[str, Any]]:
    """
    The schemas of types by the id of the type, and the components that they refer to.
    """
    kinds = list(kinds)
    schemas, found = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}, found


def json_content(text: str, schema: Any) -> dict[str, Any]:
    """
    An answer in JSON.
    """
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def fields_of(kind: type[msgspec.Struct], place: str) -> list[dict[str, Any]]:
    """
    The fields of a type as parameters in the query, or in the header.
    """
    found = []
    for field in msgspec.structs.fields(kind):
        [schema], _ = msgspec.json.schema_components([field.type])
        if field.default is not msgspec.NODEFAULT and field.default not in (None, "", msgspec.UNSET):
            schema = {**schema, "default": field.default}
        text = schema.pop("description", "")
        one = {"name": field.encode_name, "in": place, "required": field.required, "schema": schema}
        found.append({**one, "description": text} if text else one)
    return found
