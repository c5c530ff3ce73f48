"""``python -m grue.cli``."""

import sys

from grue.cli.entry import main

sys.exit(main())
