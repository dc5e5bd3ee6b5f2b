"""The changes of a page, applied as a browser does, give the newest page."""

from __future__ import annotations

import copy
from typing import Any

from pytest_osmosis.viewer.live_page import OTHER_PAGE, LivePage

BEGUN: Any = {
    "seq": 0,
    "head": {
        "row": {"status": "running"},
        "outcomes": ["pending"],
        "boundaries": [],
        "errors": [],
        "finish_reasons": [],
    },
    "rows": {"index": [3, 7], "digest": ["a", ""], "prompt": ["", ""]},
    "runs": {
        "row": [0, 0, 1],
        "run": [0, 1, 0],
        "model": [0, 0, 0],
        "outcome": [0, 0, 0],
        "boundary": [-1, -1, -1],
        "error": [-1, -1, -1],
        "scores": {"f": [None, None, None]},
        "metrics": {},
        "tokens": [None, None, None],
        "finish_reason": [-1, -1, -1],
        "chunk": [],
    },
}


def page_with(**changes: Any) -> Any:
    """A page with other members at places: `errors=[...]`, or `score_2=1.0` for the entry of a run."""
    page = copy.deepcopy(BEGUN)
    page["head"] |= {key: value for key, value in changes.items() if key in page["head"]}
    for key, value in changes.items():
        name, _, at = key.rpartition("_")
        if name in page["rows"]:
            page["rows"][name][int(at)] = value
        elif name in page["runs"]:
            page["runs"][name][int(at)] = value
        elif name == "score":
            page["runs"]["scores"]["f"][int(at)] = value
    return page


def applied(page: Any, changes: Any) -> Any:
    """The page that a browser makes of an earlier one."""
    page = copy.deepcopy(page)
    if changes["head"] is None:
        return page
    page |= {"seq": changes["seq"], "head": changes["head"]}
    for part, at in (("runs", changes["at"]), ("rows", changes["rows_at"])):
        for key, values in (changes[part] or {}).items():
            columns = page[part][key] if isinstance(values, dict) else page[part]
            for name, each in values.items() if isinstance(values, dict) else [(key, values)]:
                column = columns.setdefault(name, [None] * len(page["runs"]["row"]))
                for place, value in zip(at, each, strict=bool(each)):
                    column[place] = value
    return page


def named(page: Any) -> Any:
    """The page with names instead of their positions."""
    lists = {"outcome": "outcomes", "boundary": "boundaries", "error": "errors", "finish_reason": "finish_reasons"}
    named = {
        key: [None if each < 0 else page["head"][names][each] for each in page["runs"][key]]
        for key, names in lists.items()
    }
    return page["rows"], page["runs"] | named


SECOND = page_with(
    outcomes=["passed", "pending"], outcome_0=0, outcome_1=1, outcome_2=1, score_0=1.0, prompt_0="Hi", tokens_0=9
)
THIRD = page_with(
    outcomes=["failed", "passed", "pending"],
    boundaries=["agent"],
    errors=["ValueError", "KeyError"],
    outcome_0=1,
    outcome_1=2,
    outcome_2=0,
    error_2=1,
    boundary_2=0,
    prompt_0="Hi",
    score_0=1.0,
    tokens_0=9,
    digest_1="b",
)


def test_changes_lead_from_any_earlier_page_to_the_newest() -> None:
    live = LivePage(BEGUN, 10)
    pages = [live.page]
    for seq, made in ((11, SECOND), (14, THIRD)):
        live.renew(made, seq)
        pages.append(live.page)
    assert [page["seq"] for page in pages] == [10, 11, 14]
    assert named(live.page) == named(THIRD)
    for earlier in pages:
        assert applied(earlier, live.changes(earlier["seq"])) == live.page


def test_only_what_changed_is_told() -> None:
    live = LivePage(BEGUN, 1)
    live.renew(SECOND, 2)
    live.renew(THIRD, 3)
    changes = live.changes(2)
    assert (changes["at"], changes["rows_at"]) == ([2], [1])
    assert changes["runs"] is not None
    assert changes["runs"]["scores"] == {"f": [None]}
    assert live.changes(3)["head"] is None


def test_positions_of_names_stay() -> None:
    live = LivePage(SECOND, 1)
    live.renew(THIRD, 2)
    assert live.page["head"]["outcomes"] == ["passed", "pending", "failed"]
    assert live.page["runs"]["outcome"] == [0, 1, 2]


def test_a_page_with_other_runs_is_asked_for_as_a_whole() -> None:
    live = LivePage(BEGUN, 1)
    live.renew(page_with(index_1=8), 2)
    assert live.changes(1)["seq"] == OTHER_PAGE
    assert live.changes(2)["seq"] == 2
    assert live.changes(99)["seq"] == OTHER_PAGE


def test_scores_of_a_new_function_are_told() -> None:
    live = LivePage(BEGUN, 1)
    newer = page_with(score_1=0.5)
    newer["runs"]["scores"]["g"] = [None, 0.25, None]
    live.renew(newer, 2)
    changes = live.changes(1)
    assert (changes["at"], changes["runs"] and changes["runs"]["scores"]) == ([1], {"f": [0.5], "g": [0.25]})
