"""`python -m inlay` is the command line."""

from __future__ import annotations

import sys

from inlay.cli.main import main

sys.exit(main())
