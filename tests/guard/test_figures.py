"""A rollout and a process need what figures.json says. Nothing is timed, so a slow machine changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guard.figures import (
    CHANCE,
    IS_COUNTED,
    PYTHON,
    differences,
    import_figures,
    module_differences,
    most_calls,
    needs,
    stored,
)
from tests.guard.imports import processes

counted = pytest.mark.skipif(not IS_COUNTED, reason=f"figures.json has the calls and bytecodes of Python {PYTHON}")


def check(what: str, lines: list[str]) -> None:
    if lines:
        advice = "If that is meant, run `python -m tests.guard.update` and commit tests/guard/figures.json."
        pytest.fail("\n".join([what, *(f"  {line}" for line in lines), advice]), pytrace=False)


def test_each_rollout_needs_the_messages_and_bytes_of_the_file_and_leaves_no_cycles() -> None:
    check(
        "Each rollout needs other messages, bytes or objects:", differences(stored()["traffic"], needs()[0]["traffic"])
    )


@counted
def test_each_rollout_and_the_import_of_the_plugin_need_the_calls_of_the_file() -> None:
    now, _ = needs()
    lines = differences(stored()["counts"], {**now["counts"], **import_figures()})
    check("Each rollout, or the import of the plugin, needs other calls:", [*lines, *most_calls({}, now, lines)])


@counted
def test_a_rollout_needs_no_more_in_an_eval_of_more_rollouts() -> None:
    few, more = needs()
    lines = differences(few["counts"], more["counts"], CHANCE) + differences(few["traffic"], more["traffic"])
    check("Each rollout needs more in an eval of more rollouts:", [*lines, *most_calls(few, more, lines)])


@pytest.mark.slow
def test_each_process_imports_the_modules_of_the_file(tmp_path: Path) -> None:
    check("Processes import other modules:", module_differences(stored()["modules"], processes(tmp_path)))
