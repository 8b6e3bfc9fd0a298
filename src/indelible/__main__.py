"""``python -m indelible`` is the command line."""

import sys

from indelible.cli import main

if __name__ == "__main__":
    sys.exit(main())
