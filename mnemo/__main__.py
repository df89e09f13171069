"""Run the command line as ``python -m mnemo``."""

from __future__ import annotations

import sys

from mnemo.cli import main

if __name__ == "__main__":
    sys.exit(main())
