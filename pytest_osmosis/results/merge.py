"""The merge of shards: from their results files to the results, the gates and the exit status of the whole.

Statistics are not averaged: the records of all shards are put together and counted anew, as an eval run that made them
all would count them. Wall time is that of the longest shard, because shards run side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.errors import Problem, ProblemsError, ResultsError
from pytest_osmosis.formats.codec import builtin
from pytest_osmosis.record.lifecycle import StopReason
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.record.run_id import ModelTag, plan_order
from pytest_osmosis.results import results
from pytest_osmosis.results.conclude import Conclusion, Rules, any_answer, corrected, is_not_measured, why_unfit
from pytest_osmosis.results.entry_table import entry_table, is_comparison
from pytest_osmosis.results.previous_run import previous_run
from pytest_osmosis.results.read import PublishedResults, read_results, results_of
from pytest_osmosis.results.results import (
    BaselineFile,
    Results,
    ShardFacts,
    Throttling,
    max_errors_text,
    most_errors,
    too_many,
)
from pytest_osmosis.results.totals import CassetteUse, sum_of_all, summed
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.verdicts.comparison import BaselineComparison
from pytest_osmosis.verdicts.pass_rule import kind_of

INTERRUPTED, NOT_MEASURED = 2, 9
"""Exit statuses of pytest."""
COMPARISON = "comparison.json"
"""The end of the name of a file with the table of several evals, in the folder of their results."""
_MOST_LISTED = 10
_STRENGTH: Sequence[StopReason] = (
    *("killed", "journal", "systemic", "max_errors", "max_cost_usd", "max_tokens", "max_duration_s", "requested"),
    *("interrupt", "maxfail", "closed", "decided"),
)
"""Reasons to stop: the first one that stopped a shard is that of the whole."""


class MergedEval(Struct, frozen=True):
    """The results of a whole eval. `sources` are the files that it was made of.

    `gated` is True if gates decide in place of single runs. Results of shards follow from their `conclusion`. `missing`
    are the numbers of shards that are not there, and `notes` say what else to know. `status` is the exit status that
    pytest would have.
    """

    results: Results
    sources: Sequence[Path]
    gated: bool
    conclusion: Conclusion | None = None
    missing: Sequence[int] = ()
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, files: Sequence[PublishedResults], baseline: Path | None) -> MergedEval:
        """Return the measured results of one eval."""
        sources = [each.path for each in files]
        if files[0].shard is None:
            whole = results_of(files[0])
            return cls(whole, sources, _decides(whole))
        files, facts = zip(*sorted(_shards(files), key=lambda each: each.facts.index), strict=True)
        there = {each.index for each in facts}
        missing = [number for number in range(1, facts[0].of + 1) if number not in there]
        measured = _measured(files, facts, missing)
        stored = _stored_baseline(files[0], facts[0], baseline)
        rules = _rules(measured, files, facts, missing, has_stored=stored is not None)
        stops = [fact.baseline_stopped for fact in facts if fact.baseline_stopped is not None]
        decides = not measured.partial and all(each.decides for each in facts)
        conclusion = Conclusion.of(measured, rules, stored, stopped="; ".join(dict.fromkeys(stops)) or None)
        return cls(measured, sources, decides, conclusion, missing)

    def concluded(self, compared: BaselineComparison | None, runs: Path | None) -> MergedEval:
        """Return the eval with the verdicts of its gates, and compared with the previous run in the folder `runs`."""
        if self.conclusion is None:
            return self
        last = None if runs is None else previous_run(runs, self.results.provenance["plan_digest"]).head
        made, unread = self.conclusion.results(compared, None if last is None else last.path)
        ignored = [] if unread is None else [f"an earlier run is ignored: {unread}"]
        return replace(self, results=made, notes=[*self.notes, *ignored])

    @property
    def is_copy(self) -> bool:
        """True if the only file already held the whole."""
        return self.results.shard is None and len(self.sources) == 1 and not self.missing

    @property
    def status(self) -> int:
        results = self.results
        part = bool(self.missing) or (results.is_merged and results.partial and results.smoke_of is None)
        return NOT_MEASURED if part else exit_status(results, gated=self.gated)


def exit_status(results: Results, *, gated: bool) -> int:
    """Return the exit status that pytest has for the results of an eval. `gated` is True if gates decide."""
    reason = "requested" if results.stop_reason == "interrupt" else results.stop_reason
    if results.n_unrecorded:
        return 1
    if is_not_measured(results, reason, gated=gated, measured=any_answer(results)):
        return NOT_MEASURED
    if any(verdict.state == "fails" for verdict in results.verdicts):
        return 1
    if results.smoke_of is not None or gated:
        return 0
    return int(any(kind_of(record, results.pass_rule) in ("failed", "error") for record in results.records))


def stored_status(path: Path) -> int:
    """Return the exit status of the pytest that wrote a results file. Raises `ResultsError` if it cannot be read."""
    results = results_of(read_results(path))
    if results.stop_reason == "interrupt":
        return INTERRUPTED
    if results.shard is not None:
        return exit_status(results, gated=results.shard.decides)
    return exit_status(results, gated=_decides(results))


def _decides(whole: Results) -> bool:
    """Return True if gates decided. Those that a new baseline leaves undecided accept the runs as they are."""
    return not whole.partial and any(verdict.state != "partial" for verdict in whole.verdicts)


def merge(paths: Sequence[Path], *, baseline: Path | None = None, runs: Path | None = None) -> list[MergedEval]:
    """Merge results files, those of each eval with one another; a file of a whole eval stays as it is.

    The results of a baseline are read from the path that the shards name, from here, or from `baseline`. `runs` is the
    folder of eval runs in which the previous run of a plan is searched. Raises `ResultsError` for a file that cannot be
    read, and `ProblemsError` for files that do not belong together.
    """
    evals: dict[tuple[str, str], list[PublishedResults]] = {}
    for path in _without_comparisons(paths):
        read = read_results(path)
        evals.setdefault((read.config["name"], read.config["path"]), []).append(read)
    problems = [problem for files in evals.values() for problem in problems_of(files)]
    if problems:
        raise ProblemsError(problems)
    parts = [MergedEval.of(files, baseline) for files in evals.values()]
    compared = corrected([None if part.conclusion is None else part.conclusion.compared for part in parts])
    return _entries_compared([part.concluded(each, runs) for part, each in zip(parts, compared, strict=True)])


def _without_comparisons(paths: Sequence[Path]) -> list[Path]:
    """Return the paths of results, without the tables that compare several evals."""
    others = [path for path in paths if not (path.name.endswith(COMPARISON) and is_comparison(path))]
    if paths and not others:
        raise ResultsError(f"{shown(paths[0])}: compares several evals; name the results of shards in its place")
    return others


def _entries_compared(evals: Sequence[MergedEval]) -> list[MergedEval]:
    """Compare the merged entries of each config anew, over all rows, and bring them into their order."""
    groups: dict[str, dict[str, MergedEval]] = {}
    for each in evals:
        of_config = str(each.results.description.extra.get("path", ""))
        groups.setdefault(of_config, {})[each.results.description.name] = each
    return [each for group in groups.values() for each in _entries_of_config(group)]


def _entries_of_config(group: Mapping[str, MergedEval]) -> Iterator[MergedEval]:
    tables = [each.results.among for each in group.values() if each.results.among is not None]
    if not tables or all(each.is_copy for each in group.values()):
        yield from group.values()
        return
    longest = max(tables, key=lambda table: table.duration_ms or 0.0)
    names = [entry.name for entry in longest.entries if entry.name in group]
    names += [name for name in group if name not in names]
    results = {name: group[name].results for name in names}
    table = entry_table(longest.config, results, longest.duration_ms) if len(names) > 1 else None
    for name in names:
        yield replace(group[name], results=replace(results[name], among=table))


class _ShardResults(NamedTuple):
    """The results of a shard, and the facts about it."""

    read: PublishedResults
    facts: ShardFacts


def _shards(files: Sequence[PublishedResults]) -> list[_ShardResults]:
    return [_ShardResults(each, each.shard) for each in files if each.shard is not None]


def _measured(files: Sequence[PublishedResults], facts: Sequence[ShardFacts], missing: Sequence[int]) -> Results:
    parts = [results_of(each) for each in files]
    first = parts[0]
    records = sorted(chain.from_iterable(part.all_records for part in parts), key=lambda record: plan_order(record.run))
    other = next((part.baseline for part in parts if part.baseline is not None), None)
    measured = replace(
        results.of_records(
            first.description,
            first.pass_rule,
            records,
            {ModelTag.PRIMARY: first.price, ModelTag.BASELINE: None if other is None else other.price},
            None if other is None else other.model,
        ),
        smoke_of=first.smoke_of,
        partial=bool(missing) or not all(each.whole for each in facts),
        n_planned=facts[0].planned_runs,
        duration_ms=max(part.duration_ms for part in parts),
        row_digests={row: digest for part in parts for row, digest in part.row_digests.items()},
        among=max(
            (each for part in parts if (each := part.among)), key=lambda each: each.duration_ms or 0.0, default=None
        ),
        throttling=_throttling([part.throttling for part in parts], sum(len(part.all_records) for part in parts)),
        judge_price=lambda use: next((price for part in parts if (price := part.judge_price(use)) is not None), None),
        provenance=_provenance(files, facts),
        cassette=_cassette([part.cassette for part in parts if part.cassette is not None]),
    )
    return _with_stop(measured, parts, facts)


def _throttling(parts: Sequence[Throttling], n_rollouts: int) -> Throttling:
    """Return the sums, and the fewest in flight of the shards that had to pause."""
    limit = min(parts[0].limit, n_rollouts)
    least = min((part.least_in_flight for part in parts if part.pauses), default=limit)
    return Throttling(
        sum(part.pauses for part in parts),
        sum(part.paused_s for part in parts),
        least,
        limit,
        summed(part.held_s for part in parts),
    )


def _cassette(parts: Sequence[CassetteUse]) -> CassetteUse | None:
    if not parts:
        return None
    return replace(
        parts[0],
        digest=parts[0].digest if len({part.digest for part in parts}) == 1 else None,
        requests=sum(part.requests for part in parts),
        replayed=sum(part.replayed for part in parts),
        replayed_tokens=sum(part.replayed_tokens for part in parts),
        replayed_cost_usd=sum_of_all(part.replayed_cost_usd for part in parts),
        unrecorded=summed(part.unrecorded for part in parts),
    )


def _provenance(files: Sequence[PublishedResults], facts: Sequence[ShardFacts]) -> Mapping[str, Any]:
    each = [read.provenance for read in files]
    commits = {provenance.get("git_commit") for provenance in each}
    dirty = [provenance.get("git_dirty") for provenance in each]
    lost = [provenance["lost_in_flight"] for provenance in each if "lost_in_flight" in provenance]
    return {
        **{key: value for key, value in each[0].items() if key != "cassette"},
        **({"lost_in_flight": sum(lost)} if lost else {}),
        "run_dir": "",
        "started_at": min(provenance["started_at"] for provenance in each),
        "finished_at": max(provenance["finished_at"] for provenance in each),
        **({"git_commit": commits.pop() if len(commits) == 1 else None} if "git_commit" in each[0] else {}),
        **(
            {"git_dirty": True if True in dirty else None if None in dirty else False} if "git_dirty" in each[0] else {}
        ),
        "shards": [
            {
                "index": fact.index,
                "of": fact.of,
                "run_dir": read.provenance["run_dir"],
                "started_at": read.provenance["started_at"],
                "finished_at": read.provenance["finished_at"],
                "duration_ms": read.summary.total_duration_ms,
            }
            for read, fact in zip(files, facts, strict=True)
        ],
    }


def _with_stop(measured: Results, parts: Sequence[Results], facts: Sequence[ShardFacts]) -> Results:
    """Return the results with the reason why runs are missing, or why too many were not measured."""
    stops = [
        (part.stop_reason, fact.shard, part.stopped)
        for part, fact in zip(parts, facts, strict=True)
        if part.stopped and (part.stop_reason != "max_errors" or part.count("pending"))  # a share is one of all runs
    ]
    if stops:
        reason = min((reason for reason, _, _ in stops if reason is not None), key=_STRENGTH.index, default=None)
        text = "; ".join(f"{shard}: {text}" for each, shard, text in stops if each == reason)
        return replace(measured, stopped=text, stop_reason=reason)
    n_unmeasured = sum(len(cause.runs) for cause in measured.causes if not cause.is_measured)
    fact, n_runs = facts[0], len(measured.records)
    if measured.smoke_of is None and n_unmeasured > most_errors(fact, n_runs):
        text = too_many(measured.causes, n_runs, max_errors_text(fact))
        return replace(measured, stopped=text, stop_reason="max_errors")
    return measured


def _rules(
    measured: Results,
    files: Sequence[PublishedResults],
    facts: Sequence[ShardFacts],
    missing: Sequence[int],
    *,
    has_stored: bool,
) -> Rules:
    gates = [gate.rule for gate in files[0].gates if gate.rule is not None]
    n_baseline, n_planned = len(measured.baseline.records) if measured.baseline is not None else 0, measured.n_planned
    has_model = not has_stored and (measured.baseline is not None or any(rule.is_regression for rule in gates))
    share = f"only {n_baseline:,} of the baseline's {n_planned:,} runs selected"
    part = f"only {len(measured.records):,} of {n_planned:,} runs selected"
    part = missing_text(missing, facts[0].of) if missing else part
    return Rules(gates, part if measured.partial else None, share if has_model and n_baseline < n_planned else None)


def missing_text(missing: Sequence[int], of: int) -> str:
    """Return which shards are missing, in words.

    >>> missing_text([3], 8), missing_text([3, 5], 8)
    ('shard 3 of 8 is missing', 'shards 3, 5 of 8 are missing')
    """
    which = listed(map(str, missing), _MOST_LISTED)
    return f"shard {which} of {of} is missing" if len(missing) == 1 else f"shards {which} of {of} are missing"


def _stored_baseline(first: PublishedResults, facts: ShardFacts, path: Path | None) -> PublishedResults | None:
    """Return the results that the whole is compared with. Raises `ProblemsError` if the shards had others."""
    if facts.baseline is None:
        return None
    place = Path(facts.baseline.path) if path is None else path
    fix = "check out the repository before the merge, and merge in the folder in which the shards ran"
    fix += ", or name the file with --baseline=PATH"
    try:
        stored = read_results(place)
    except ResultsError as error:
        raise ProblemsError([Problem(f"the baseline of {first.config['name']}", f"{error}; {fix}")]) from None
    unfit = why_unfit(stored)
    if path is None and unfit is None and BaselineFile.of(place, "").sha256 != facts.baseline.sha256:
        unfit = "is not the file that the shards had"
    if unfit is not None:
        raise ProblemsError([Problem(f"the baseline of {first.config['name']}", f"{shown(place)}: {unfit}; {fix}")])
    return stored


# -- complaints about files that do not belong together, and about differences between shards --------------

_PER_MACHINE = ("batch_size", "overridden", "baseline_model")
"""Keys of the published config that may differ between the shards of an eval: one without rows has no baseline."""


def problems_of(files: Sequence[PublishedResults]) -> Iterator[Problem]:
    """Yield why the results of one eval cannot be merged."""
    name = files[0].config["name"]
    if len(files) == 1 and files[0].shard is None:
        return
    for whole in (each for each in files if each.shard is None):
        fix = "merge only the results of shards (--osmosis-shard), or this file alone"
        yield Problem(shown(whole.path), f"holds no shard, but other files of the eval {name} are there; {fix}")
    shards = _shards(files)
    found: dict[Shard, PublishedResults] = {}
    repeated = [(each, facts.shard) for each, facts in shards if found.setdefault(facts.shard, each) is not each]
    for each, shard in repeated:
        there = shown(found[shard].path)
        yield Problem(shown(each.path), f"holds {shard} of {name} again, as {there} does; name one of them")
    differing = [(one, difference) for one in shards[1:] for difference in _differences(shards[0], one)]
    for one, (what, here, there) in differing:
        first = shown(shards[0].read.path)
        yield Problem(shown(one.read.path), f"{what}: {here}, but {there} in {first}; {_ONE_PLAN}")
    if not (repeated or differing):
        yield from _missing_rows(shards)
        yield from _shared_rows(shards)


def _missing_rows(shards: Sequence[_ShardResults]) -> Iterator[Problem]:
    """Yield the files that lack rows of their shard, so that a whole made of them would be a part."""
    for each, facts in shards:
        n_rows = len(_rows_of(each))
        if facts.index > facts.of:
            yield Problem(shown(each.path), f"there is no {facts.shard}")
        elif facts.whole and n_rows < facts.rows:
            text = f"holds {plural(n_rows, 'row')}, but {facts.shard} has {count(facts.rows)}"
            yield Problem(shown(each.path), f"{text}; the file was changed, so take that of the run directory")


def _rows_of(each: PublishedResults) -> set[int]:
    return {row.row_index for row in each.all_rows}


def _shared_rows(shards: Sequence[_ShardResults]) -> Iterator[Problem]:
    rows: dict[int, Path] = {}
    for each, _ in shards:
        own = _rows_of(each)
        if shared := sorted(own & rows.keys()):
            other = shown(rows[shared[0]])
            yield Problem(shown(each.path), f"row {shared[0]} is also in {other}; shards have no row in common")
        rows.update(dict.fromkeys(own, each.path))


_ONE_PLAN = "the shards of an eval have one config, one dataset and one version of its code"


class _Difference(NamedTuple):
    """A thing that two shards should have in common: its value in one file, and in the first file."""

    name: str
    here: str
    there: str


def _differences(one_part: _ShardResults, other_part: _ShardResults) -> Iterator[_Difference]:
    (first, one), (other, two) = one_part, other_part
    if two.of != one.of:
        yield _Difference("number of shards", str(two.of), str(one.of))
        return
    settings = [key for key in (*first.config, *other.config) if key not in _PER_MACHINE]
    named = [key for key in dict.fromkeys(settings) if first.config.get(key) != other.config.get(key)]
    for key in named:
        yield _Difference(f"config.{key}", _written(other.config.get(key)), _written(first.config.get(key)))
    if not named and other.provenance["plan_digest"] != first.provenance["plan_digest"]:
        yield _Difference("plan_digest", other.provenance["plan_digest"], first.provenance["plan_digest"])
    there, here = (read.provenance.get("dataset_sha256") or "" for read in (first, other))
    if here and there and here != there:  # the rows may stand in another order
        yield _Difference("SHA-256 of the dataset", here[:12], there[:12])
    for key, value in _counted(one).items():
        if _counted(two)[key] != value:
            yield _Difference(f"shard.{key}", str(_counted(two)[key]), str(value))
    for name in sorted(one.code.keys() & two.code.keys()):
        if one.code[name] != two.code[name]:
            yield _Difference(f"digest of the code of {name}", two.code[name], one.code[name])
    if _gates(other) != _gates(first):
        yield _Difference("gates", *(_written([gate.title for gate in read.gates]) for read in (other, first)))
    if two.baseline != one.baseline:
        yield _Difference("baseline", _written_baseline(two), _written_baseline(one))


def _counted(facts: ShardFacts) -> Mapping[str, object]:
    """Return the facts that all shards of an eval have in common."""
    counts = {"planned_rows": facts.planned_rows, "planned_runs": facts.planned_runs}
    return {**counts, "max_errors": max_errors_text(facts)}


def _written(value: object) -> str:
    return json.dumps(value, default=builtin)


def _written_baseline(facts: ShardFacts) -> str:
    return "none" if facts.baseline is None else f"{facts.baseline.path} ({facts.baseline.sha256[:12]})"


def _gates(read: PublishedResults) -> list[Any]:
    return [(gate.title, gate.rule) for gate in read.gates]
