"""Settings for all tests.

Hypothesis has no deadline for an example, because a slow machine is not a failure. Sessions that tests start are not
xdist workers, even if the tests run in one.
"""

from __future__ import annotations

import os

try:
    from hypothesis import settings
except ModuleNotFoundError:  # whoever runs this repository's evals, and not its tests, may lack it
    pass
else:
    settings.register_profile("shared", deadline=None)
    settings.load_profile("shared")

for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
    del os.environ[name]
os.environ.pop("PYTHONUNBUFFERED", None)  # users' output is buffered
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each session of a test would compile some 300 modules again
