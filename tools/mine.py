#!/usr/bin/env python3
"""
Mine the traffic log: alone on this machine, or unchanged under spark-submit.  docs/mining.md says how.
"""

import os
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
if (TOP / "msgnode").is_dir():  # a checkout; under spark-submit --py-files brings the package
    sys.path.insert(0, str(TOP))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TOP), os.environ.get("PYTHONPATH"))))

from msgnode.cli.mining.group import mine  # noqa: E402

if __name__ == "__main__":
    mine(prog_name="tools/mine.py")
