"""What all tests share: Hypothesis has no deadline for an example, as machines are shared and slow is no failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
