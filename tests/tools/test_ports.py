"""
The ports of nodes that tests and soaks start.
"""

import subprocess
import sys

from soaking.peers.ports import free_port

from tests.support.examples import TOP

COUNT = 300
OTHER = f"""
from soaking.peers.ports import free_port
print(*(free_port() for _ in range({COUNT})), flush=True)
input()
"""


def test_no_port_is_given_twice() -> None:
    """
    Programs that run at the same time are given different ports, and none the same one twice.
    """
    command = [sys.executable, "-c", OTHER]
    with subprocess.Popen(
        command, cwd=TOP / "tools", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        theirs = other.stdout.readline().split()
        ours = [str(free_port()) for _ in range(COUNT)]
        other.stdin.write("\n")

    assert len({*ours, *theirs}) == 2 * COUNT
