"""
The bodies of messages as the command line has them.
"""

import json
import sys
from math import isinf
from typing import Any, NoReturn

import click


def body_of(text: str | None) -> Any:
    """
    Returns the body for BODY on the command line, which is read from stdin for `-`; None without BODY.
    """
    if text is None:
        return None
    return body_in(sys.stdin.read() if text == "-" else text)


def body_in(text: str) -> Any:
    """
    Returns the body for a text: JSON, else the text.  Raises click.BadParameter.
    """
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise click.BadParameter("is nested too deeply", param_hint="BODY") from None
    except ValueError as why:
        if text.lstrip()[:1] in ("{", "["):
            raise click.BadParameter(f"looks like JSON, but is not: {why}", param_hint="BODY") from None
        return text.rstrip("\n")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text} is too large a number")
    return number
