"""``python -m ottrpo``."""

import sys

from ottrpo.cli import main

if __name__ == "__main__":  # a process of a study may load this file again
    sys.exit(main())
