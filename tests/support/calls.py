"""
The cost of code in calls, which is the same on a fast and on a busy machine.
"""

import gc
import sys
from collections.abc import Callable
from typing import Any


def calls_of(code: Callable[[], object]) -> int:
    """
    The number of functions, of Python and of C, that the code calls, without those of the garbage collection.
    """
    number = 0

    def count(frame: Any, event: str, of: Any) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    was_enabled = gc.isenabled()
    gc.disable()  # it calls whoever listens to it
    sys.setprofile(count)
    try:
        code()
    finally:
        sys.setprofile(None)
        if was_enabled:
            gc.enable()
    return number
