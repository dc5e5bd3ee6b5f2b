"""The pages of the front end on two eval runs, and on all of an eval, made of real ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from tests.cli.stored_runs import RealRuns


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


def test_rows_that_only_one_eval_run_has_are_named(real_runs: RealRuns) -> None:
    page = page_of(real_runs.now, real_runs.other)

    assert (page["only_a"], page["only_b"]) == ([], [7, 8])
    assert page["sentence"].startswith("No difference: over the 6 rows that both measured, the pass rate of B is ")


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


def test_rows_that_are_no_fair_sample_decide_nothing(copied: RealRuns) -> None:
    results = copied.now / "results.json"
    results.write_text(json.dumps({**json.loads(results.read_text()), "partial": True}))

    page = page_of(copied.then, copied.now)

    assert page["meaning"] is None
    assert page["sentence"].startswith("Decides nothing: over the 6 rows")
    assert page["caveats"][0].startswith("B is a part of its plan")


def history(runs: Sequence[PastRun]) -> ModelHistory:
    """Return the history of eval runs of one model."""
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
