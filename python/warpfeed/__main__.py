"""The command line: ``warpfeed ...`` or ``python -m warpfeed ...``."""

from __future__ import annotations

import signal
import sys

from ._warpfeed import run_program


def main() -> int:
    """Runs the program with the arguments of this process. Returns its exit code."""
    # Python's own handler only sets a flag, which the native command-line tool does not check.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_program(["warpfeed", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
