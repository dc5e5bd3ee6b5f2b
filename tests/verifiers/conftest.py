"""Tests with verifiers itself, in a folder of its own (`make test-verifiers`): everything here is skipped without it.

`VERIFIERS_ENVIRONMENTS` names the folder `environments` of verifiers' repository, for the tests that run those.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
collect_ignore = ["environments"]  # their code needs verifiers, which is not there in all runs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    of_tasksets = find_spec("verifiers") is not None and version("verifiers") >= "0.4"
    for item in items:
        if FOLDER not in item.path.parents:
            continue
        if find_spec("verifiers") is None:
            item.add_marker(pytest.mark.skip(reason="needs verifiers: make test-verifiers"))
        elif of_tasksets != (item.path.name == "test_tasksets.py"):
            item.add_marker(
                pytest.mark.skip(reason="environments are those before verifiers 0.4, tasksets those from then on")
            )
