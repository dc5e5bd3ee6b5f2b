"""Settings for all tests.

Hypothesis has no deadline for an example, because a slow machine is not a failure. Sessions that tests start are not
xdist workers, even if the tests run in one.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
    del os.environ[name]
