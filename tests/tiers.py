"""The tiers of the tests: their folders and their order.

A test without a mark runs in `make test`, and must be cheap: it starts no pytest, no Ray and no browser, and takes a
second at most. The few marked `journey` start a pytest even so, one for each kind of thing that a user does. `slow`
tests run in `make test-all`, which CI requires, `nightly` ones in `make nightly`, for which nothing waits.
pyproject.toml lists all marks.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HAS_ADDONS = find_spec("pytest_osmosis.addons") is not None
SLOW = (
    *("browser", "durability", "endpoint", "environments", "host", "mcp", "verifiers", "viewer"),
    *("cli/test_stopping.py", "contract/test_import_cost.py"),
    *("plugin/test_gating.py", "plugin/test_html_reports.py", "plugin/test_inline.py", "plugin/test_other_plugins.py"),
    *("plugin/test_prime_files.py", "plugin/test_recorded_conversations.py", "plugin/test_report_files.py"),
    *("plugin/test_rescoring.py", "plugin/test_resuming.py", "plugin/test_several_evals.py"),
    "plugin/test_tests_over_rollouts.py",
)
"""Folders and files whose tests start hosts, browsers or sessions: all of their tests but journeys are slow."""
OF_ADD_ONS = (
    *("browser", "cluster", "corpus", "docs", "environments", "mcp", "oracle", "verifiers", "viewer"),
    *("unit/compat", "unit/environments", "unit/lab", "unit/viewer"),
    *("cli/dashboards.py", "cli/test_compare.py", "cli/test_export.py"),
    *("cli/test_list.py", "cli/test_show.py", "cli/test_view.py"),
    *("contract/test_docs_tables.py", "contract/test_layers.py"),
    *("engine/test_engine_artifacts.py", "engine/test_engine_judges.py"),
    *("hostile/test_dashboard.py", "hostile/test_fuzz_read_back.py"),
    *("plugin/test_html_reports.py", "plugin/test_prime_files.py", "plugin/test_waiting.py"),
    *("plugin/test_reward_functions.py", "plugin/test_tests_over_rollouts.py"),
    *("unit/config/test_environment_config.py", "unit/config/test_verifiers_tomls.py"),
    *("unit/evals/test_prime_import.py", "unit/host/test_own_arguments.py"),
    *("unit/host/test_time_of_rollouts.py", "unit/host/test_user_code.py", "unit/judges"),
    "unit/plugin/test_page_flags.py",
)
"""Folders and files whose tests need a folder of `pytest_osmosis/addons/`. `make test-core` runs without it and them.

In other files such tests are marked `addon`.
"""
LONGEST_FIRST = (
    *("durability", "plugin/test_same_under_xdist.py", "hostile", "docs", "browser", "viewer", "cluster"),
    *("environments", "plugin", "contract"),
)
"""Folders and files in the order in which they begin. All others follow, so that no long test is the last to run."""


def sort_into_tiers(items: list[pytest.Item]) -> None:
    """Mark the tests of slow folders and files, and put the longest first."""
    for item in items:
        path = Path(_path(item))
        if any(path.is_relative_to(start) for start in SLOW) and not item.get_closest_marker("journey"):
            item.add_marker(pytest.mark.slow)
    items.sort(key=_place)


def _path(item: pytest.Item) -> str:
    """Return the path of a test's file below this folder, "" for a doctest of the package."""
    return item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""


def _place(item: pytest.Item) -> int:
    path = _path(item)
    return next((n for n, start in enumerate(LONGEST_FIRST) if Path(path).is_relative_to(start)), len(LONGEST_FIRST))


def is_of_add_on(path: Path) -> bool:
    """True for a file or folder whose tests need an add-on."""
    return any(path.is_relative_to(HERE / start) for start in OF_ADD_ONS)
