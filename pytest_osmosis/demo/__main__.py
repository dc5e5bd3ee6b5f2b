"""`python -m pytest_osmosis.demo`."""

from __future__ import annotations

import sys

from pytest_osmosis.demo.server import main

if __name__ == "__main__":
    sys.exit(main())
