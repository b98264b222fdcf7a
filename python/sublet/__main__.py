"""The command line: `python -m sublet`, or `sublet` once the package is installed."""

import sys

from . import _sublet


def main() -> int:
    """Does what the arguments of the process ask for; the status to end with."""
    return _sublet.run(["sublet", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
