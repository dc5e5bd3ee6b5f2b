"""Pages on stored eval runs of every kind: all numbers are those of results.json, or of the journal without one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.viewer.open_run import OpenRun
from pytest_osmosis.addons.viewer.run_entry import run_entry
from pytest_osmosis.addons.viewer.run_list import entry_rows
from pytest_osmosis.addons.viewer.shapes import RunPage, encoded
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.results.entry_table import entry_table
from pytest_osmosis.stats import gaffke
from tests.plugin.workspaces import read_json
from tests.viewer.stored_kinds import KINDS, make_kinds

pytestmark = pytest.mark.slow
WITH_RESULTS = ("whole", "tests", *KINDS, "going on", "rescored", "never scored again")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return make_kinds(tmp_path_factory.mktemp("kinds"))


@pytest.fixture
def opened(kinds: Mapping[str, Path], kind: str) -> OpenRun:
    run = OpenRun(RunDirectory(kinds[kind]))
    run.read()
    return run


def runs_of(page: RunPage) -> dict[tuple[int, int, int], dict[str, Any]]:
    """Return the runs of a page as objects, by row, run and model."""
    head, columns, rows = page["head"], page["runs"], page["rows"]["index"]
    runs = {}
    for at, row in enumerate(columns["row"]):
        made = {
            "outcome": head["outcomes"][columns["outcome"][at]],
            "boundary": _named(head["boundaries"], columns["boundary"][at]),
            "error": _named(head["errors"], columns["error"][at]),
            "scores": {name: scores[at] for name, scores in columns["scores"].items() if scores[at] is not None},
            "metrics": {name: values[at] for name, values in columns["metrics"].items() if values[at] is not None},
            "duration_ms": columns["duration_ms"][at],
            "tokens": columns["tokens"][at],
            "cost_usd": columns["cost_usd"][at],
            "finish_reason": _named(head["finish_reasons"], columns["finish_reason"][at]),
        }
        runs[rows[row], columns["run"][at], columns["model"][at]] = made
    assert len(runs) == len(columns["row"]), "a run is there twice"
    return runs


def _named(names: Any, place: int) -> str | None:
    return None if place < 0 else str(names[place])


def expected(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run of results.json as `runs_of` does."""
    measured = run["status"] != "skipped" and run.get("boundary") not in ("provider", "host", "reward")
    return {
        "outcome": ("passed" if run["passed"] else "failed") if measured else "unmeasured",
        "boundary": run.get("boundary"),
        "error": run.get("error"),
        "scores": run["scores"],
        "metrics": {
            f"{source}: {name}": value
            for source, named in run.get("metrics", {}).items()
            for name, value in named.items()
        },
        **{key: run[key] for key in ("duration_ms", "tokens", "cost_usd", "finish_reason")},
    }


@pytest.mark.parametrize("kind", WITH_RESULTS)
def test_every_run_is_as_in_the_results(opened: OpenRun, kinds: Mapping[str, Path], kind: str) -> None:
    results = read_json(kinds[kind] / "results.json")
    page = json.loads(encoded(opened.page()))
    shown = runs_of(page)

    published = {
        (row["row_index"], run["run_index"], int(run.get("model_tag") == "baseline")): expected(run)
        for row in results["rows"]
        for run in row["runs"]
    }
    never = {(run["row_index"], run["run_index"], 0): run["reason"] for run in results["pending"]}
    assert {key: run for key, run in shown.items() if key not in never} == published
    assert {key: (run["outcome"], run["error"]) for key, run in shown.items() if key in never} == {
        key: ("pending", reason) for key, reason in never.items()
    }
    assert list(shown) == sorted(shown, key=lambda key: (key[0], key[2], key[1]))
    assert set(page["rows"]["index"]) == {row["row_index"] for row in (*results["rows"], *results["pending"])}


@pytest.mark.parametrize("kind", WITH_RESULTS)
def test_all_statistics_are_those_of_the_results(opened: OpenRun, kinds: Mapping[str, Path], kind: str) -> None:
    results = read_json(kinds[kind] / "results.json")
    page = opened.page()
    head, summary = page["head"], results["summary"]

    assert head["results"] == {key: results[key] for key in results.keys() - {"rows", "pending", "changed_rows"}}
    models = [each["eval_fns"] for each in results.get("model_summaries", [summary])]
    for function in head["functions"]:
        assert function["statistics"] == models[function["model"]][function["name"]]
    for curve in (curve for curve in head["curves"] if curve["function"]):
        published = models[curve["model"]][curve["function"]]
        at = {f"pass_at_{k}": value for k, value in zip(curve["k"], curve["pass_at_k"], strict=True)}
        hat = {f"pass_hat_{k}": value for k, value in zip(curve["k"], curve["pass_hat_k"], strict=True) if k > 1}
        assert at | hat == {key: published[key] for key in published if key.startswith(("pass_at_", "pass_hat_"))}
    n_functions = len(results["config"]["eval_fns"])
    assert len(head["functions"]) == n_functions * len(models)
    has_curves = results["config"]["n_runs"] > 1 and not summary["pending"]
    assert len(head["curves"]) == has_curves * (n_functions + 1) * len(models)
    own = [outcome for (_, _, model), run in runs_of(page).items() if model == 0 for outcome in [run["outcome"]]]
    counts = Counter(own)
    assert counts["passed"] + counts["failed"] == summary["measured"]
    assert counts["pending"] == summary["pending"]
    if summary["pass_rate"] is not None:
        assert counts["passed"] / (len(own) - counts["pending"]) == pytest.approx(summary["pass_rate"])
    assert [(gate["gate"], gate["state"]) for gate in head["results"]["gates"]] == [
        (gate["gate"], gate["state"]) for gate in results["gates"]
    ]


@pytest.mark.parametrize("kind", WITH_RESULTS)
def test_an_eval_run_has_one_row_in_list_and_page(opened: OpenRun, kinds: Mapping[str, Path], kind: str) -> None:
    assert opened.page()["head"]["row"] == run_entry(kinds[kind])


@pytest.mark.parametrize("kind", ["cut"])
def test_a_part_has_counts_and_no_misleading_rates(opened: OpenRun, kinds: Mapping[str, Path], kind: str) -> None:
    summary = read_json(kinds[kind] / "results.json")["summary"]
    head = opened.page()["head"]
    row = head["row"]

    assert summary["pending"] > 0
    assert summary["pass_rate"] is not None
    assert (row.pass_rate, row.pass_rate_interval, row.measured) == (None, None, summary["measured"])
    assert head["curves"] == []
    assert {each["pass_rate"] for column in head["slices"] for each in column["slices"]} <= {None}
    results = opened.stored.results
    assert results is not None
    assert [each["pass_rate"] for each in entry_rows(entry_table("", {row.name: results}), [row])] == [None]


@pytest.mark.parametrize("kind", ["killed"])
def test_a_killed_eval_run_has_all_its_runs_and_no_rate(opened: OpenRun, kinds: Mapping[str, Path]) -> None:
    page = opened.page()
    row, counts = page["head"]["row"], Counter(run["outcome"] for run in runs_of(page).values())

    assert (row.status, row.pass_rate, row.selected) == ("failed", None, 12)
    assert counts == {"passed": 6, "failed": 2, "unmeasured": 2, "pending": 2}
    assert (row.passed, row.measured, row.ended) == (6, 8, 10)
    assert page["head"]["results"]["gates"][0]["state"] == "not decided"
    assert any("was killed" in line for line in page["head"]["remarks"])
    assert {slice["pass_rate"] for each in page["head"]["slices"] for slice in each["slices"]} == {None}
    assert all(page["rows"]["prompt"])
    rows = read_json(kinds["whole"] / "results.json")["rows"]
    assert page["rows"]["index"] == [row["row_index"] for row in rows]


@pytest.mark.parametrize("kind", ["whole"])
def test_slices_have_the_rates_of_their_rows_with_intervals_as_in_results(opened: OpenRun) -> None:
    slices = {each["column"]: each for each in opened.page()["head"]["slices"]}
    assert slices.keys() == {"reward", "level"}, "the other columns have texts, or as many values as rows"
    levels = slices["level"]
    found = {each["value"]: each for each in levels["slices"]}
    assert {value: (each["rows"], each["passed"], each["measured"], each["runs"]) for value, each in found.items()} == {
        "easy": ([0, 1], 2, 4, 4), "hard": ([2, 3, 4], 4, 4, 6), "(none)": ([5], 0, 2, 2),
    }  # fmt: skip
    assert [found[value]["pass_rate"] for value in ("easy", "hard", "(none)")] == [0.5, 4 / 6, 0.0]
    by_row = {"easy": [[1.0, 1.0], [0.0, 0.0]], "hard": [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]], "(none)": [[0.0, 0.0]]}
    assert {value: each["pass_rate_interval"] for value, each in found.items()} == {
        value: gaffke(rows) for value, rows in by_row.items()
    }


@pytest.mark.parametrize(
    ("kind", "column", "values"),
    [("csv", "topic", ["a", "b"]), ("recorded", "info.part", ["x", "y"]), ("doubled", "info.part", ["0", "wrong"])],
)
def test_rows_of_every_kind_of_dataset_have_slices_and_prompts(opened: OpenRun, column: str, values: list[str]) -> None:
    page = opened.page()

    slices = {each["column"]: [part["value"] for part in each["slices"]] for each in page["head"]["slices"]}
    assert slices[column] == values
    assert page["head"]["no_slices"] == ""
    assert all("* 2?" in prompt for prompt in opened.dataset.prompts.values())
    assert len(opened.dataset.prompts) == 4
    assert page["rows"]["prompt"] == [opened.dataset.prompts[row] for row in page["rows"]["index"]]


@pytest.mark.parametrize("kind", ["b"])
def test_slices_and_the_row_are_about_the_own_model_of_an_eval_with_a_baseline(opened: OpenRun) -> None:
    page = opened.page()

    assert page["head"]["models"] == ["demo/arithmetic", "demo/arithmetic"]
    assert Counter(page["runs"]["model"]) == {0: 12, 1: 12}
    assert sum(each["runs"] for each in page["head"]["slices"][0]["slices"]) == 12
    assert page["head"]["row"].selected == 12


@pytest.mark.parametrize("kind", ["whole"])
def test_a_changed_dataset_is_left_aside(opened: OpenRun, kinds: Mapping[str, Path], kind: str) -> None:
    dataset = kinds[kind].parents[2] / "data" / "x.jsonl"
    before = dataset.read_bytes()
    try:
        dataset.write_bytes(before + b"\n{}")
        head = opened.page()["head"]
    finally:
        dataset.write_bytes(before)

    assert head["slices"] == []
    assert head["no_slices"].endswith("data/x.jsonl has changed since the eval run began")


@pytest.mark.parametrize(("kind", "named"), [("whole", "x.toml::x"), ("one", "several.toml::one"), ("tests", "")])
def test_the_command_that_repeats_a_run(opened: OpenRun, kinds: Mapping[str, Path], named: str) -> None:
    again = [f"pytest '{kinds['whole'].parents[2]}/configs/eval/{named}[", "]' --osmosis-set=evaluation.batch_size=1"]

    assert opened.page()["head"]["rerun"] == (again if named else None)


@pytest.mark.parametrize("kind", WITH_RESULTS)
def test_a_page_of_results_alone_says_what_one_with_the_journal_says(kinds: Mapping[str, Path], kind: str) -> None:
    run = OpenRun(RunDirectory(kinds[kind]))
    first = json.loads(run.json())
    run.compared()
    assert json.loads(run.json()) == first
