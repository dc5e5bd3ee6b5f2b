"""`pytest-osmosis runs compare A B`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.addons.viewer.compared_runs import compare_runs, read_side
from pytest_osmosis.addons.viewer.comparing import (
    ComparedRun,
    PastRun,
    comparison_page,
    history_page,
    past_run,
    past_run_of,
)
from pytest_osmosis.addons.viewer.comparison_lines import comparison_json
from pytest_osmosis.addons.viewer.run_entry import RunEntry
from pytest_osmosis.addons.viewer.shapes import ComparisonPage, ModelHistory, encoded
from pytest_osmosis.addons.viewer.stored_results import read_stored
from pytest_osmosis.formats.codec import encode
from pytest_osmosis.record.find_run import StoredEvalRun, stored
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.verdicts.comparison import RowRuns
from tests.cli.stored_runs import LOADED, RESULTS, Cli, RealRuns, Stored
from tests.journals import with_checksums
from tests.unit.made import finished, published


@pytest.mark.slow
def test_the_page_has_rates_difference_settings_and_rows(there: Cli, real_runs: RealRuns) -> None:
    page = there("runs", "compare", "x~1", "x").splitlines()
    assert page[1].split() == ["run", real_runs.then.name, real_runs.now.name]
    assert " ".join(page[6].split()) == "passed 10 of 14 runs, 2 not measured 4 of 14 runs, 2 not measured"
    assert page[11:14] == [
        "pass rate over the 6 rows that both measured, with its 95% interval:",
        "  A      0.833 (0.398 to 0.995)",
        "  B      0.333 (0.047 to 0.754)",
    ]
    assert page[14].startswith("  B - A  -0.500 (-0.")
    assert page[14].endswith("): may be chance (p = 0.38, McNemar, exact)")
    assert page[15] == "  1 row better, 4 worse"
    assert page[17] == "  rows left out: 1 not measured in both"
    assert "[sampling] seed 0 -> 1" in [" ".join(line.split()) for line in page]
    worse, *rest = page[page.index("rows that changed:") + 1 :]
    assert worse.startswith("  worse: row1 2/2 -> 0/2, ")
    assert rest == [
        "  better: row2 0/2 -> 2/2",
        f"  row1 in A: pytest-osmosis show {real_runs.then.name} row1",
        f"  row1 in B: pytest-osmosis show {real_runs.now.name} row1",
    ]


def test_json_says_the_same_and_more(there: Cli, real_runs: RealRuns) -> None:
    found = json.loads(there("runs", "compare", real_runs.then.name, "latest~1", "--json"))
    assert (found["schema_version"], found["a"]["run"], found["b"]["run"]) == (
        1,
        real_runs.then.name,
        real_runs.now.name,
    )
    assert found["rows"] == {"compared": 6, "only_a": 0, "only_b": 0, "other_content": 0, "not_measured": 1}
    assert (found["better"], found["worse"], found["difference"]) == (1, 4, -0.5)
    assert (found["p_value"], found["meaning"], found["least_p"]) == (0.375, "chance", None)
    tokens = json.loads((real_runs.then / "results.json").read_text())["summary"]["total_tokens"]
    assert [found["a"][key] for key in ("tokens", "passed", "counted", "measured")] == [tokens, 10, 14, 12]
    rows = {row["b"]["row_index"]: row for row in found["changed_rows"]}
    assert (rows[2]["change"], rows[2]["a"]["passed"], rows[2]["b"]["passed"]) == ("better", 0, 2)
    assert rows[1]["b"]["runs"][1]["outcome"] == "failed"
    assert rows[1]["a"]["runs"][0]["answer"] == "1 * 2 = 2\n#### 2"


def test_a_results_file_is_one_side_even_if_its_run_is_gone(copied: RealRuns, typed: Cli) -> None:
    baseline = copied.root / "baseline.json"
    shutil.copy(copied.then / "results.json", baseline)
    page = typed("runs", "compare", "baseline.json", copied.now.name)
    assert "finished, a results file" in page
    assert "row1 in A" in page
    shutil.rmtree(copied.then)
    page = typed("runs", "compare", "baseline.json", copied.now.name)
    assert "B - A  -0.500 (" in page
    assert "row1 in A" not in page
    found = json.loads(typed("runs", "compare", "baseline.json", copied.now.name, "--json"))
    assert [found["changed_rows"][0][side]["runs"][0]["answer"] is None for side in ("a", "b")] == [True, False]
    same = typed("runs", "compare", str(copied.now / "results.json"), copied.now.name, fails=1)
    assert "are the same eval run; name two" in same


def test_an_eval_run_that_did_not_end_is_compared_as_far_as_it_got(copied: RealRuns, typed: Cli) -> None:
    (copied.now / "results.json").unlink()
    journal = copied.now / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if '"row":3' in line)
    kept = [line for line in lines[:last] if '"row":6' not in line and '"ev":"ended"' not in line]
    journal.write_text("".join(kept) + lines[last][:20])
    page = typed("runs", "compare", "x~1", "x")
    assert "B did not end: only rows that it has measured so far are compared" in page
    table = typed("runs", "compare", "x~1", "x", "--table")
    assert f"{copied.now.name}): not compared: its run did not end; resume it first" in table
    assert "row6" not in page
    assert "\n  worse: row1 2/2 -> 0/2" in page


def test_rows_that_are_no_fair_sample_decide_nothing(copied: RealRuns, typed: Cli) -> None:
    results = json.loads((copied.now / "results.json").read_text())
    (copied.now / "results.json").write_text(json.dumps({**results, "partial": True}))
    page = typed("runs", "compare", "x~1", "x")
    assert "): decides nothing (p" in page
    assert "  B is a part of its plan; rows that were chosen by their outcome" in page
    assert json.loads(typed("runs", "compare", "x~1", "x", "--json"))["meaning"] is None


def test_what_rollouts_depend_on_is_compared_too(copied: RealRuns, typed: Cli) -> None:
    path = copied.now / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["inputs"]["agent"]["max_turns"] = 3
    manifest["inputs"]["env"] = {"PROMPT": "0123456789abcdef"}
    manifest["timeouts"]["grader_timeout_s"] = 7
    manifest["versions"]["openai"] = "9.9.9"
    manifest["git"] = {"git_commit": "1f3a" * 10, "git_dirty": True}
    path.write_text(json.dumps(manifest))
    results = json.loads((copied.then / "results.json").read_text())
    results["provenance"] |= {"git_commit": "2b" * 20, "git_dirty": False}
    (copied.then / "results.json").write_text(json.dumps(results))
    journal = copied.now / "journal.jsonl"
    began, loaded, *rest = journal.read_text().splitlines(keepends=True)
    event = json.loads(loaded)
    event["digests"]["rewards:score"] = "0" * 16
    journal.write_bytes(with_checksums("".join([began, json.dumps(event) + "\n", *rest]).encode()))
    lines = [" ".join(line.split()) for line in typed("runs", "compare", "x~1", "x").splitlines()]
    assert "[agent] max_turns 10 -> 3" in lines
    assert 'names in [env] [] -> ["PROMPT"]' in lines
    assert "grader_timeout_s 150.0 -> 7.0" in lines
    assert "code of rewards:score changed" in lines
    assert "git commit 2b2b2b2b2b2b -> 1f3a1f3a1f3a with uncommitted changes" in lines
    assert any(line.startswith("openai ") and line.endswith("-> 9.9.9") for line in lines)
    assert "the runs were scored differently, so their pass rates do not mean the same" in lines


def test_files_of_rollouts_that_changed_are_named(typed: Cli, stored: Stored) -> None:
    began = {"ev": "began", "at": "2026-01-01T00:00:00+00:00", "pid": 1, "machine": "m", "resumed": True}
    for name, tools in (("then", "1"), ("same", "1"), ("now", "2")):
        stored(name, began, {**LOADED, "rollout_code": {"agent.py": "0" * 16, "tools.py": tools * 16}})
    changed, same = (typed("runs", "compare", "then", name) for name in ("now", "same"))
    assert "code of rollouts (tools.py) changed" in [" ".join(line.split()) for line in changed.splitlines()]
    assert "code of rollouts" not in same


def test_different_evals_are_compared_over_the_rows_with_the_same_content(there: Cli) -> None:
    page = there("runs", "compare", "x", "y")
    for line in (
        "pass rate over the 6 rows that both measured",
        "\n  B - A  0.000 (",
        "): no difference (p = 1,",
        "\n  no row changed\n",
        "rows left out: 2 only in B, 1 not measured in both",
    ):
        assert line in page
    lines = [" ".join(line.split()) for line in page.splitlines()]
    assert {"eval x -> y", "n 2 -> 3", "dataset data/x.jsonl -> data/y.jsonl"} <= {*lines}
    assert "worse in B" not in page


def test_few_rows_are_called_few_and_other_scoring_is_marked_and_long_lists_are_cut(typed: Cli, stored: Stored) -> None:
    def both(name: str, n_rows: int, then: float, now: float, **options: Any) -> tuple[str, str]:
        old, new = ([finished({"rewards:a": score}, row) for row in range(n_rows)] for score in (then, now))
        stored(f"{name}-then", results=published(old))
        stored(f"{name}-now", results=published(new, **options))
        return f"{name}-then", f"{name}-now"

    page = typed("runs", "compare", *both("few", 5, 1.0, 0.0))
    assert "): decides nothing (p = 0.062, McNemar, exact)\n  0 rows better, 5 worse\n" in page
    assert "  5 rows cannot show a difference: p is at least 0.062, whatever the rows are" in page
    page = typed("runs", "compare", *both("other", 7, 0.7, 0.7, thresholds={"rewards:a": 0.5}))
    assert "  the runs were scored differently, so their pass rates do not mean the same\n" in page
    assert '  thresholds  {"rewards:a": 1.0} -> {"rewards:a": 0.5}\n' in page
    assert "): B is better (p = 0.016, McNemar, exact)\n" in page
    page = typed("runs", "compare", *both("long", 12, 1.0, 0.0))
    every = typed("runs", "compare", "long-then", "long-now", "--all")
    assert f"\n  worse: {', '.join(f'row{row}' for row in range(10))} and 2 more\n" in page
    assert ", row10, row11\n" in every


def test_what_cannot_be_compared_says_why(typed: Cli, stored: Stored) -> None:
    stored("x-20260102T000000Z-aaaaaa", age_s=1)
    moved = [{**row, "row_digest": "f" * 16} for row in RESULTS["rows"]]
    stored("other", results={**RESULTS, "rows": moved}, age_s=2)
    broken = json.loads(json.dumps(RESULTS))
    for run in broken["rows"][0]["runs"]:
        run.update(status="failed", scores={}, passed=False, boundary="provider", error="503", success=False)
    broken["summary"] |= {"finished": 0, "failed": 2}
    stored("broken", results=broken, age_s=3)
    stored("killed", results=None, age_s=4)
    said = typed("runs", "compare", "other", "x-2026", fails=1)
    assert said == (
        "nothing can be compared: no row of A has the content of a row of B "
        '(A: 1 row of "data/x.jsonl"; B: 1 row of "data/x.jsonl"); --table compares them all the same, as other rows\n'
    )
    said = typed("runs", "compare", "x-2026", "broken", fails=1)
    assert "of 1 common row, none was measured in both (A measured 2 of 2 runs; B measured 0 of 2 runs)" in said
    assert typed("runs", "compare", "killed", "x-2026", fails=1) == "nothing can be compared: no run of A ended\n"
    assert "are the same eval run; name two" in typed("runs", "compare", "x-20260102T000000Z-aaaaaa", "x-2026", fails=1)


@pytest.mark.slow
def test_several_runs_are_compared_with_the_first(there: Cli, real_runs: RealRuns) -> None:
    names = (real_runs.then.name, real_runs.now.name, "y")
    table = json.loads(there("runs", "compare", *names, "--json"))

    named = [(f"x ({name})", name) for name in names[:2]]
    assert [(entry["name"], entry["run"]) for entry in table["entries"]] == [*named, ("y", real_runs.other.name)]
    assert (table["compared"], table["config"], table["duration_ms"]) == (2, "", None)
    said = f"compared with x ({names[0]}), over the 6 rows that both measured; p by Holm's method for 2 comparisons"
    assert there("runs", "compare", *names).splitlines()[5] == said


def test_runs_with_other_rows_and_earlier_results_are_compared_in_a_table_too(typed: Cli, stored: Stored) -> None:
    folder = stored("x-20260102T000000Z-aaaaaa", age_s=1)
    moved = [{**row, "row_digest": "f" * 16} for row in RESULTS["rows"]]
    stored("other", results={**RESULTS, "rows": moved}, age_s=2)
    table = json.loads(typed("runs", "compare", "other", "x-2026", "--table", "--json"))
    assert [entry["difference"] and entry["difference"]["paired"] for entry in table["entries"]] == [None, False]
    assert "--table" not in typed("runs", "compare", "other", "x-2026", "--table")
    assert "other: is named twice; name different eval runs" in typed("runs", "compare", *["other"] * 3, fails=1)
    assert "other: one eval run cannot be compared; name two or more" in typed("runs", "compare", "other", fails=1)
    earlier = folder / "results.1.json"
    earlier.write_text(json.dumps(RESULTS))
    table = json.loads(typed("runs", "compare", folder.name, str(earlier), "--table", "--json"))
    assert [entry["name"].endswith(f"{earlier.name})") for entry in table["entries"]] == [False, True]


# -- the pages of the front end on two eval runs, and on all of an eval ------------------------------------


def run_at(path: Path) -> StoredEvalRun:
    return stored(RunDirectory(path))


def head_of(path: Path, **changes: Any) -> RunEntry:
    """The line of an eval run in the list, as far as these pages read it."""
    started_at = run_at(path).manifest.started_at
    entry = RunEntry(path.name, str(path), "finished", ended=1, selected=1, started_at=started_at)
    return replace(entry, **changes)


def side(path: Path, prompts: dict[int, str] | None = None) -> ComparedRun:
    return ComparedRun(head_of(path), read_stored(run_at(path)), prompts or {})


def page_of(a: Path, b: Path) -> ComparisonPage:
    page = comparison_page(side(a, {1: "of A", 2: "of A"}), side(b, {1: "of B"}))
    assert json.loads(encoded(page)) == encode(page)
    return page


def past(path: Path, **changes: Any) -> PastRun:
    return past_run(head_of(path, **changes), run_at(path), lambda: {1: f"row 1 of {path.name}"})


def test_a_page_has_the_numbers_of_the_command_and_every_row_with_the_largest_loss_first(real_runs: RealRuns) -> None:
    page = page_of(real_runs.then, real_runs.now)

    a, b = (
        read_side(letter, real_runs.root, run.name) for letter, run in (("A", real_runs.then), ("B", real_runs.now))
    )
    printed = comparison_json(compare_runs(a, b))
    assert page["numbers"] == {key: value for key, value in printed.items() if key in (page["numbers"] or {})}
    assert printed.keys() - (page["numbers"] or {}).keys() == {"differences", "config_diff", "changed_rows"}
    assert (page["meaning"], page["caveats"], page["problem"]) == ("chance", [], "")
    assert page["sentence"].startswith(
        "May be chance: over the 6 rows that both measured, the pass rate of B differs by -0.500 (95% interval "
    )
    assert page["sentence"].endswith(", p = 0.38, McNemar, exact); 1 row better, 4 worse.")
    assert page["remarks"][-1] == "rows left out: 1 not measured in both"
    rows = [(row["b_row"], row["change"], row["loss"], row["a_passed"], row["b_passed"]) for row in page["rows"]]
    assert rows[:5] == [(row, "worse", 1.0, 2, 0) for row in (1, 3, 5, 6)] + [(2, "better", -1.0, 0, 2)]
    assert rows[5:] == [(0, "same", 0.0, 2, 2), (4, "unmeasured", None, 0, 0)]
    assert [row["prompt"] for row in page["rows"] if row["b_row"] in (1, 2)] == ["of B", "of A"]
    assert [each.what for each in page["differs"]] == ["[sampling] seed", "digest of the dataset"]
    assert page["config_diff"] == ["-seed = 0", "+seed = 1"]


def test_a_page_without_common_rows_says_why_and_names_them(copied: RealRuns) -> None:
    results = copied.now / "results.json"
    document = json.loads(results.read_text())
    for row in document["rows"]:
        row["row_digest"] = f"{row['row_index']:016x}"
    results.write_text(json.dumps(document))

    page = page_of(copied.then, copied.now)

    assert page["problem"].startswith("nothing can be compared: no row of A has the content of a row of B (")
    assert "--table" not in page["problem"]
    assert (page["numbers"], page["rows"], page["only_a"], page["only_b"]) == (None, [], [*range(7)], [*range(7)])
    assert page["differs"]


def history(runs: Sequence[PastRun]) -> ModelHistory:
    (of_model,) = history_page("x", runs)["models"]
    return of_model


def test_a_history_compares_each_eval_run_with_the_one_before_of_its_plan(copied: RealRuns) -> None:
    page = history([past(copied.now), past(copied.other), past(copied.then)])

    assert [point["row"].name for point in page["points"]] == [
        copied.then.name,
        copied.now.name,
        copied.other.name,
    ]
    first, change, other = (point["change"] for point in page["points"])
    assert (first, other) == (None, None)
    assert change == {"before": copied.then.name, "difference": -0.5, "rows": 6}


def test_an_eval_run_is_compared_with_the_whole_one_before(copied: RealRuns) -> None:
    stopped, decided = past(copied.now, status="stopped"), past(copied.now, ended=1, selected=2)
    again = past(copied.now, started_at="3")

    points = history([past(copied.then), stopped, decided, again])["points"]

    assert [point["change"]["before"] for point in points if point["change"]] == [copied.then.name] * 3


def test_rows_that_flip_come_first_by_their_flips_with_the_newest_prompt_that_is_known(copied: RealRuns) -> None:
    again = past(copied.then, started_at="3")
    page = history([past(copied.then), past(copied.now), again._replace(prompts=dict)])

    assert [(row["row_index"], row["flips"]) for row in page["rows"]] == [(row, 2) for row in (1, 2, 3, 5, 6)]
    assert page["rows"][0]["prompt"] == f"row 1 of {copied.now.name}"
    assert page["rows"][0]["passed"] == [2, 0, 2]
    assert page["rows"][1]["measured"] == [2, 2, 2]
    assert page["rows"][1]["row_indices"] == [2, 2, 2]
    assert page["n_steady"] == 1  # row 4 was never measured


def test_a_row_of_which_half_the_runs_passed_has_neither_passed_nor_failed(copied: RealRuns) -> None:
    all_of, half, none = (True, True), (True, False, None), (False,)
    orders = (all_of, half, all_of), (half, half, half), (all_of, half, none), (half, all_of, none), (none, half, none)
    eval_runs = [
        past(copied.then, started_at=str(at))._replace(
            rows=[RowRuns(row, f"{row}", order[at]) for row, order in enumerate(orders)]
        )
        for at in range(3)
    ]
    page = history(eval_runs)
    assert [(row["row_index"], row["flips"]) for row in page["rows"]] == [(2, 1), (3, 1)]
    assert (page["rows"][0]["passed"], page["rows"][0]["measured"]) == ([2, 1, 0], [2, 2, 1])
    assert page["n_steady"] == 3


def test_a_history_holds_eval_runs_that_did_not_end_and_says_which_cannot_be_read(copied: RealRuns) -> None:
    read = past_run_of(head_of(copied.now), read_stored(run_at(copied.now)), dict)
    (copied.now / "results.json").unlink()
    journal = copied.now / "journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    from_journal = past(copied.now)
    assert sorted(from_journal.rows) == sorted(read.rows) == sorted(past(copied.now).rows)
    assert from_journal.plan == read.plan == past(copied.then).plan
    shutil.copy(copied.then / "manifest.json", copied.now)
    journal.write_text("no journal\n" * 2)
    page = history([past(copied.then), past(copied.now)])
    (unread,) = (point for point in page["points"] if point["row"].name == copied.now.name)
    assert unread["problem"]
    assert unread["change"] is None


def test_only_the_newest_thirty_eval_runs_are_shown_by_model_the_newest_first(real_runs: RealRuns) -> None:
    one = past(real_runs.then)

    rows = [head_of(real_runs.then, started_at=f"{n:03}", model=f"m{n % 3}") for n in range(42)]
    page = history_page("x", [one._replace(row=row) for row in rows])

    assert ([each["model"] for each in page["models"]], page["n_earlier"]) == (["m2", "m1", "m0"], 12)
    assert [len(each["points"]) for each in page["models"]] == [10, 10, 10]
    assert page["models"][2]["points"][0]["row"].started_at == "012"
