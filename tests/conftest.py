"""What all tests share: Hypothesis has no deadline for an example, as machines are shared and slow is no failure.

Sessions that tests start are nobody's workers, though the tests themselves may run in one.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
    del os.environ[name]
