"""``python -m ottrpo.cli``."""

import sys

from ottrpo.cli import main

sys.exit(main())
