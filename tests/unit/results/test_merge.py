"""Merged shards equal the whole, whatever their runs came to; files that do not belong together are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_osmosis.config.eval_kinds import GateRule, TokenPrices
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.models.prices import price_from
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import NO_NOTES, JudgeUse, RewardError, RunRecord
from pytest_osmosis.results import results
from pytest_osmosis.results.conclude import Conclusion, Rules
from pytest_osmosis.results.entry_table import entry_table
from pytest_osmosis.results.merge import MergedEval, merge, stored_status
from pytest_osmosis.results.publish import published, published_text
from pytest_osmosis.results.read import read_head
from pytest_osmosis.results.results import Results, ShardFacts, Throttling
from pytest_osmosis.results.totals import CassetteUse
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.gates import Verdict, title_of
from tests.raised import raised
from tests.unit.made import CONFIG, PROVENANCE, A, B, failed, finished, pending, removed, results_of, rolled

GATES = [
    GateRule("pass_rate", 0.5),
    GateRule("pass_rate", 0.3, "lower"),
    GateRule("mean", 0.4, function=A),
    GateRule("pass_at", 0.6, k=2),
    GateRule("max_regression", -0.1),
]
PRICE = price_from(TokenPrices(1.0, 2.0, 1.0, 1.0), "the config")


def record_strategy(row: int, index: int, model: ModelTag) -> st.SearchStrategy[RunRecord]:
    of = st.sampled_from
    notes = of([NO_NOTES, NO_NOTES.add({"metrics": {A: {"length": 3.0}}, "reasons": {A: "it looked"}})])
    fields = {
        "usage": of([None, {"input_tokens": 11, "output_tokens": 7}, {"input_tokens": 5}]),
        "answer": of([None, "0" * 16, "1" * 16]),
        "notes": notes,
        "judge_uses": of([(), (JudgeUse("demo/judge", None, 1, 0, 0, (("input_tokens", 3),)),)]),
        "attempt": st.integers(1, 2),
        "repeated": st.booleans(),
        "finish_reason": of(["length", None]),
    }
    score, text = of([0.0, 0.25, 1.0]), of(["503 from server 1", "503 from server 2", "no answer"])
    error = st.builds(RewardError, of(["ValueError: a; b: c", "b: no"]), boundary=of(["reward", "provider"]))
    boundary = of(["provider", "host", "model", "agent", "timeout"])
    place = {"row": st.just(row), "run": st.just(index)}
    return st.one_of(
        st.builds(finished, st.fixed_dictionaries({A: score, B: score}), **place, **fields),
        st.builds(finished, st.fixed_dictionaries({A: score}), **place, errors=st.fixed_dictionaries({B: error})),
        st.builds(finished, st.just({}), **place, errors=st.fixed_dictionaries({A: error, B: error})),
        st.builds(failed, boundary, **place, error=text),
        of([removed(row, index), pending(row, index, "stopped")]),
        st.builds(rolled, **place, retries=st.just(2), attempt=st.just(2), repeated=st.just(True), notes=notes),
    ).map(lambda record: replace(record, run=RunId(row, index, model)))


@st.composite
def evals(draw: st.DrawFn) -> tuple[Results, Rules, int]:
    """The results of a whole eval without verdicts, its rules, and a number of shards."""
    n, n_rows = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    rows = sorted(draw(st.lists(st.integers(0, 40), min_size=n_rows, max_size=n_rows, unique=True)))
    runs = [(row, index) for row in rows for index in range(n)]
    own = [draw(record_strategy(row, index, ModelTag.PRIMARY)) for row, index in runs]
    has_baseline = draw(st.booleans())
    other = [draw(record_strategy(row, index, ModelTag.BASELINE)) for row, index in runs] if has_baseline else None
    gates = draw(st.lists(st.sampled_from(GATES if has_baseline else GATES[:-1]), unique=True, max_size=3))
    made = results_of(own, scorers=(A, B), n=n, extra=CONFIG, price=PRICE, baseline=other)
    made = replace(
        made,
        n_planned=len(own),
        provenance=PROVENANCE,
        throttling=Throttling(0, 0.0, min(CONFIG["batch_size"], len(own) + len(other or ())), CONFIG["batch_size"]),
        judge_price=lambda use: PRICE,
    )
    return made, Rules(gates), draw(st.integers(1, 5))


def concluded(whole: Results, rules: Rules) -> Results:
    conclusion = Conclusion.of(whole, rules)
    return conclusion.results(conclusion.compared, None).results


def shard_of(whole: Results, rules: Rules, shard: Shard, **changes: Any) -> Results:
    """Return the results of the job that ran this shard, as a session would make them."""
    rows = sorted({record.run.row for record in whole.records})[shard.index - 1 :: shard.of]
    own = [record for record in whole.records if record.run.row in rows]
    other = whole.baseline
    others = [record for record in other.records if record.run.row in rows] if other is not None else []
    name = other.model if other is not None and others else None
    made = results.of_records(
        whole.description, whole.pass_rule, [*own, *others], {ModelTag.PRIMARY: whole.price}, name
    )
    planned = {"planned_rows": len({record.run.row for record in whole.records}), "planned_runs": len(whole.records)}
    errors = {"max_errors": 1.0, "max_errors_is_share": True}
    facts: dict[str, Any] = {**planned, **errors, "whole": True, "missing": None, "decides": rules.decide}
    return replace(
        whole,
        records=own,
        **{name: getattr(made, name) for name in ("by_function", "overall", "baseline")},
        partial=True,
        shard=ShardFacts(index=shard.index, of=shard.of, rows=len(rows), **{**facts, **changes}),
        verdicts=[Verdict(title_of(rule), "partial", "merge decides", rule=rule) for rule in rules.gates],
        row_digests={row: whole.row_digests[row] for row in rows},
    )


def shards_of(whole: Results, rules: Rules, of: int, **changes: Any) -> list[Results]:
    return [shard_of(whole, rules, Shard(number, of), **changes) for number in range(1, of + 1)]


def facts_of(shard: Results) -> ShardFacts:
    assert shard.shard is not None
    return shard.shard


def told(shard: Results, **provenance: Any) -> Results:
    return replace(shard, provenance={**shard.provenance, **provenance})


def write(folder: Path, shards: Sequence[Results]) -> list[Path]:
    paths = [folder / f"{number}.json" for number, _ in enumerate(shards, 1)]
    for path, shard in zip(paths, shards, strict=True):
        path.write_text("".join(published_text(shard, Redaction())), encoding="utf-8")
    return paths


def merged_of(folder: Path, shards: Sequence[Results]) -> MergedEval:
    (merged,) = merge(write(folder, shards))
    return merged


def plain(made: Results) -> dict[str, Any]:
    """Return the published object without provenance and times."""
    document: dict[str, Any] = json.loads(json.dumps(published(made)))
    document["summary"].pop("total_duration_ms")
    del document["provenance"]
    return document


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(made=evals())
def test_merged_shards_equal_the_whole(tmp_path_factory: pytest.TempPathFactory, made: Any) -> None:
    measured, rules, of = made
    whole = concluded(measured, rules)

    merged = merged_of(tmp_path_factory.mktemp("shards"), shards_of(measured, rules, of)[::-1])

    assert plain(merged.results) == plain(whole)
    assert merged.status == MergedEval(whole, (), rules.decide).status


def an_eval(*others: RunRecord, rows: int = 6) -> Results:
    """An eval of rows that passed, but for the other records."""
    by_row = {row: finished({A: 1.0, B: 1.0}, row) for row in range(rows)}
    records = {**by_row, **{record.run.row: record for record in others}}
    made = results_of(list(records.values()), scorers=(A, B), extra=CONFIG)
    return replace(made, n_planned=rows, provenance=PROVENANCE)


GATED = Rules([GATES[0]])
EASY = Rules([GateRule("pass_rate", 0.1)])


def test_a_missing_shard_or_a_part_of_one_leaves_a_part_without_verdict(tmp_path: Path) -> None:
    one, _, three = shards_of(an_eval(), GATED, 3)

    merged = merged_of(tmp_path, [one, three])

    assert (merged.status, list(merged.missing), merged.results.partial) == (9, [2], True)
    assert [(each.state, each.text) for each in merged.results.verdicts] == [("partial", "shard 2 of 3 is missing")]

    first, second = shards_of(an_eval(), GATED, 2)
    missing = "only 1 of 3 runs of shard 2 of 2 selected"
    part = replace(facts_of(second), whole=False, missing=missing, decides=False)

    partial = merged_of(tmp_path, [first, replace(second, records=second.records[:1], shard=part)])

    assert partial.results.partial
    assert [verdict.text for verdict in partial.results.verdicts] == ["only 4 of 6 runs selected"]
    assert partial.status == 9


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        ([(None, None), ("a", True)], (None, True)),
        ([("a", False), ("a", None)], ("a", None)),
        ([("a", False), ("a", False)], ("a", False)),
        ([("a", False), ("b", True)], (None, True)),
    ],
)
def test_code_is_that_of_a_commit_if_all_shards_ran_it_and_what_they_lost_kept(
    tmp_path: Path, states: Any, whole: Any
) -> None:
    shards = [told(shard, lost_in_flight=n) for n, shard in enumerate(shards_of(an_eval(), GATED, 2), 2)]
    of_code = [told(shard, git_commit=each[0], git_dirty=each[1]) for shard, each in zip(shards, states, strict=True)]

    provenance = merged_of(tmp_path, of_code).results.provenance

    assert (provenance["git_commit"], provenance["git_dirty"], provenance["lost_in_flight"]) == (*whole, 5)


def test_too_many_errors_over_all_shards_are_not_measured_and_a_share_is_one_of_all_rows(tmp_path: Path) -> None:
    whole = an_eval(failed("provider", 0), failed("provider", 3))

    few = merged_of(tmp_path, shards_of(whole, EASY, 3, max_errors=2, max_errors_is_share=False))
    many = merged_of(tmp_path, shards_of(whole, EASY, 3, max_errors=0.2))

    assert (few.status, few.results.stopped) == (0, None)
    assert (many.status, many.results.stop_reason) == (9, "max_errors")
    assert many.results.stopped == "2 of 6 runs not measured (limit 20%), mostly what happened"

    half = an_eval(failed("provider", 0, error="503"), failed("provider", 3, error="no answer"))
    halves = merged_of(tmp_path, shards_of(half, EASY, 3, max_errors=0.2))
    assert halves.results.stopped == "2 of 6 runs not measured (limit 20%), most often 503", "half is not most"

    first, *others = shards_of(an_eval(failed("provider", 0)), Rules(), 3, max_errors=0.2)
    first = replace(first, stopped="1 of 2 runs not measured", stop_reason="max_errors")

    merged = merged_of(tmp_path, [first, *others])

    assert (merged.results.stopped, merged.status) == (None, 1), "that run is an error"


@pytest.mark.parametrize("rules", [Rules(), EASY])
def test_a_shard_whose_replay_asked_something_else_fails_the_whole(tmp_path: Path, rules: Rules) -> None:
    replayed = CassetteUse("replay", "x.cassette.jsonl")
    first, *others = [replace(each, cassette=replayed) for each in shards_of(an_eval(failed("provider", 0)), rules, 3)]
    first = replace(first, cassette=replace(replayed, unrecorded={"provider": 1}))

    assert merged_of(tmp_path, [first, *others]).status == 1


@pytest.mark.parametrize(("of_shards", "digest"), [("a", "a"), ("aa", "a"), ("ab", None)])
def test_a_cassette_has_a_digest_if_it_is_that_of_all_shards(tmp_path: Path, of_shards: str, digest: Any) -> None:
    used = [CassetteUse("replay", "x.cassette.jsonl", letter, requests=2) for letter in of_shards]
    shards = [replace(each, cassette=one) for one, each in zip(used, shards_of(an_eval(), GATED, 3), strict=False)]

    merged = merged_of(tmp_path, shards).results.cassette

    assert merged == CassetteUse("replay", "x.cassette.jsonl", digest, 2 * len(shards))


def test_a_stopped_shard_is_named_and_its_missing_runs_leave_the_gate_undecided(tmp_path: Path) -> None:
    def merged_with(minimum: float) -> MergedEval:
        one, two, three = shards_of(an_eval(pending(1), pending(4)), Rules([GateRule("pass_rate", minimum)]), 3)
        two = replace(two, stopped="max_cost_usd = 1 reached", stop_reason="max_cost_usd")
        return merged_of(tmp_path, [one, two, three])

    sure, unsure = merged_with(0.5), merged_with(0.9)

    assert (sure.status, sure.results.stopped) == (0, "shard 2 of 3: max_cost_usd = 1 reached")
    assert (unsure.status, unsure.results.verdicts[0].state) == (9, "not measured")


@pytest.mark.parametrize(
    "end", [{}, {"stopped": "its process ended", "stop_reason": "killed"}, {"stopped": "its process ended"}]
)
def test_without_gates_a_shard_that_lacks_a_run_is_not_measured(tmp_path: Path, end: dict[str, Any]) -> None:
    one, two, three = shards_of(an_eval(pending(1), rows=3), Rules(), 3)

    assert merged_of(tmp_path, [one, replace(two, **end), three]).status == 9


def test_a_whole_file_stays_as_it_is(tmp_path: Path) -> None:
    whole = concluded(an_eval(), GATED)

    merged = merged_of(tmp_path, [whole])

    assert (merged.is_copy, merged.status) == (True, 0)
    assert plain(merged.results) == plain(whole)


def test_a_part_and_results_of_another_plan_are_no_previous_run(tmp_path: Path) -> None:
    made = an_eval()
    paths = write(tmp_path, [told(made, plan_digest="1" * 32), replace(made, partial=True), made])
    found = [Conclusion.of(made, GATED).results(None, path).results.previous for path in paths]
    assert [each is None for each in found] == [True, True, False]


@pytest.mark.parametrize(
    ("made", "statuses"),
    [
        (an_eval(rows=1), [0, 0, 0]),
        (an_eval(failed("agent")), [1, 0, 0]),
        (an_eval(failed("host"), rows=1), [9, 9, 9]),
    ],
)
def test_single_runs_decide_unless_a_gate_does_and_one_must_be_an_answer(
    tmp_path: Path, made: Results, statuses: list[int]
) -> None:
    accepted = Rules([GateRule("max_regression", -0.1)], new_baseline=True)
    paths = write(tmp_path, [concluded(made, rules) for rules in (Rules(), EASY, accepted)])
    assert list(map(stored_status, paths)) == statuses


def test_files_that_do_not_belong_together_are_refused_with_all_problems(tmp_path: Path) -> None:
    measured = an_eval()
    one, two, three, four = shards_of(measured, GATED, 4)
    one = replace(one, shard=replace(facts_of(one), code={A: "1"}))
    two = told(two, plan_digest="1" * 32)
    three = replace(three, pass_rule=replace(three.pass_rule, thresholds={A: 0.5}))
    four = replace(four, shard=replace(facts_of(four), code={A: "2"}), verdicts=())

    paths = write(tmp_path, [one, two, three, four, one, concluded(measured, GATED)])
    lines = str(raised(OsmosisError, merge, paths)).splitlines()

    first = shown(tmp_path / "1.json")
    assert [line.partition(": ")[2].partition(";")[0] for line in lines] == [
        "holds no shard, but other files of the eval x are there",
        f"holds shard 1 of 4 of x again, as {first} does",
        f"plan_digest: {'1' * 32}, but {'0' * 32} in {first}",
        f'config.thresholds: {{"{A}": 0.5, "{B}": 1.0}}, but {{"{A}": 1.0, "{B}": 1.0}} in {first}',
        f"digest of the code of {A}: 2, but 1 in {first}",
        f'gates: [], but ["pass_rate >= 0.5"] in {first}',
    ]


def test_a_dataset_in_another_order_other_agents_and_lost_rows_are_refused(tmp_path: Path) -> None:
    one, two, three, four = shards_of(an_eval(), GATED, 4)
    lost = [one, replace(four, records=four.records[:0])]
    twice = [three, replace(three, shard=facts_of(four))]
    one = replace(one, shard=replace(facts_of(one), code={"agent.py": "1"}))
    three = replace(three, shard=replace(facts_of(three), code={"agent.py": "2"}, planned_rows=99))

    said = str(raised(OsmosisError, merge, write(tmp_path, [one, told(two, dataset_sha256="e" * 64), three, four])))
    for words in ("SHA-256 of the dataset", "shard.planned_rows: 99, but ", "code of agent.py: 2, but 1 in "):
        assert words in said
    with pytest.raises(OsmosisError, match="holds 0 rows, but shard 4 of 4 has "):
        merge(write(tmp_path, lost))
    with pytest.raises(OsmosisError, match="row 2 is also in "):
        merge(write(tmp_path, twice))


def test_a_shard_selects_all_its_rows_unless_runs_were_left_out(tmp_path: Path) -> None:
    whole = an_eval()
    shard = shard_of(whole, GATED, Shard(1, 2))
    part = replace(shard, shard=replace(facts_of(shard), whole=False, missing="only 1 run selected"))

    paths = write(tmp_path, [whole, replace(whole, partial=True), shard, part])

    assert [read_head(path).is_selection for path in paths] == [False, True, False, True]


@pytest.mark.parametrize(("took_ms", "longest_ms"), [((None, 0.5), 0.5), ((9.0, 5.0), 9.0)])
def test_merged_entries_took_as_long_as_the_longest_shard(tmp_path: Path, took_ms: Any, longest_ms: float) -> None:
    x = an_eval()
    entries = {"x": x, "y": replace(x, description=replace(x.description, name="y"))}
    tables = [entry_table("x.toml", entries, each) for each in took_ms]
    pairs = [zip(shards_of(each, Rules(), 2), tables, strict=True) for each in entries.values()]

    merged = merge(write(tmp_path, [replace(shard, among=table) for pair in pairs for shard, table in pair]))

    assert [each.results.among and each.results.among.duration_ms for each in merged] == [longest_ms] * 2
