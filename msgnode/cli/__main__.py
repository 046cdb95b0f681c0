"""
The entry point of the command.  The rest is imported later, which takes most of the time of a short verb.
"""

import os
import signal

from msgnode.cli import INTERRUPTED


def run() -> None:
    """
    The command `msgnode`.  An interrupt ends it without a traceback from the first moment on.
    """
    # Not an exception: some modules swallow it.  A process in the background that ignores Ctrl-C still does.
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from msgnode.cli.main import main

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main(prog_name="msgnode")


if __name__ == "__main__":
    run()
