"""The command line: `python -m sublet`, or `sublet` once the package is installed."""

import sys

from . import _sublet


def main() -> int:
    """Runs the command that the arguments of the process name, and returns the exit status."""
    return _sublet.run(["sublet", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
