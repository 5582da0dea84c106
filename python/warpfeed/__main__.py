"""The command-line tool: ``warpfeed ...`` or ``python -m warpfeed ...``."""

from __future__ import annotations

import signal
import sys

from ._warpfeed import run_program


def main() -> int:
    """Runs the command-line tool with the arguments in ``sys.argv``, and returns its exit code."""
    # Python's handler only sets a flag, which native code does not check, so Ctrl-C would be
    # ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_program(["warpfeed", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
