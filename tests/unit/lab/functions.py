"""Targets from functions that a test defines."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_osmosis.addons.lab.target import Target, target_of


def target(function: Callable[..., Any]) -> Target:
    """Return the function as a reward function of a module of its own."""
    found = target_of(function.__name__, function, function.__module__, Path("rewards.py"), plain=True)
    assert found is not None
    assert inspect.isfunction(found.function)
    return found
