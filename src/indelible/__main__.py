"""``python -m indelible`` is the command line."""

import sys

from indelible.cli import entry

if __name__ == "__main__":
    sys.exit(entry())
