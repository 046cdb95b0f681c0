"""
Numbers that are written again as they were read.
"""

import json
from copy import deepcopy

import pytest

from msgnode.policy.decision.values import number_of, text_of
from msgnode.protocol.lossless_json import Literal, dumps, loads


@pytest.mark.parametrize("number", ["0", "-0", "1.5", "1.50", "1E5", "1e400", "9" * 30, "9" * 5000])
@pytest.mark.parametrize("beside", ['"a"', r'"\ud83d"'])
def test_every_number_comes_out_as_it_went_in_beside_half(number: str, beside: str) -> None:
    """
    Every number comes out as it went in, beside half a character too, and in a copy.
    """
    data = f'{{"a":[{number},{beside},true,null]}}'.encode()

    assert dumps(deepcopy(loads(data))) == data


def test_compared() -> None:
    """
    A policy compares such a number like any other.
    """
    assert (text_of(1.5), 1.5) == (text_of(Literal("1.50")), number_of(Literal("1.50")))


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_no_numbers(name: str) -> None:
    """
    What JSON does not know is refused, though Python would read it.
    """
    assert json.loads(name) is not None
    with pytest.raises(ValueError, match=f"{name} is not a number in JSON"):
        loads(name.encode())
