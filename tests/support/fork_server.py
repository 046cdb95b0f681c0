"""
A process that has imported what `twistd msgnode` imports, and starts nodes as forks of itself.

Run as a program, with the number of a UNIX socket that listens: each connection brings the words of one
command, and gets the number of its process, and when it ends its exit code. All ends when stdin does.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any


def import_all() -> None:
    """
    Import what a node does.
    """
    import twisted.scripts.twistd  # noqa: F401
    from twisted.application.service import IServiceMaker
    from twisted.plugin import getPlugins

    import msgnode.service.options
    import msgnode.service.tap  # noqa: F401

    with suppress(ImportError):
        import msgnode_native  # noqa: F401
    list(getPlugins(IServiceMaker))
    assert "twisted.internet.reactor" not in sys.modules, "each node has a reactor of its own"


def serve(listener: socket.socket) -> dict[str, Any] | None:
    """
    Serve to the end; in a process that is to become a node, what it was ordered.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that serve a connection
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _watch(connection)
        connection.close()
    return None


def _watch(connection: socket.socket) -> dict[str, Any]:
    """
    Fork once more, and tell how it ends.
    """
    with connection, connection.makefile("rwb", buffering=0) as file:
        order: dict[str, Any] = json.loads(file.readline())
        pid = os.fork()
        if pid:
            file.write(b"%d\n" % pid)
            ended = os.pidfd_open(pid)
            if ended not in select.select([ended, sys.stdin], [], [])[0]:
                os.kill(pid, signal.SIGKILL)  # the tests have ended
            _, status = os.waitpid(pid, 0)
            with suppress(OSError):
                file.write(b"%d\n" % os.waitstatus_to_exitcode(status))
            os._exit(0)
    return order


def become_node(order: dict[str, Any]) -> None:
    """
    What `twistd` does when it is started with these words, this directory and this environment.
    """
    from twisted.scripts.twistd import run

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    said = os.open(order["said"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for number in (1, 2):
        os.dup2(said, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = order["command"]
    sys.path[0] = os.path.dirname(sys.argv[0])  # not where this file is
    gc.unfreeze()
    run()


if __name__ == "__main__":
    import_all()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        order = serve(listener)
    if order is not None:
        become_node(order)
