"""
tools/measure-directory says what an address of another member costs.
"""

import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools/measure-directory"


def test_measures_memory_and_joining(capsys):
    """
    The tool prints the bytes of an address, the time to join, and the longest turn.
    """
    loader = SourceFileLoader("measure_directory", str(TOOL))
    spec = spec_from_loader("measure_directory", loader)
    assert spec is not None
    tool = module_from_spec(spec)
    loader.exec_module(tool)

    tool.main(["--addresses", "9000"])

    printed = capsys.readouterr().out
    assert re.search(r"addresses of others: \d+ bytes each \(6000 of them\)", printed)
    assert re.search(r"join: \d+\.\d\d s of CPU time", printed)
    assert re.search(r"longest turn: newcomer \d+\.\d ms", printed)
