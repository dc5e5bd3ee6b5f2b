"""Results read back from a results.json, as typed objects.

`read_results` is for a file that the user named: it validates all of it against results.schema.json, and its errors
name the place in the file. The other functions are for files of earlier runs that the plugin searched for. They check
only the members that they return, because loading jsonschema takes longer than reading hundreds of heads.
Unknown keys are allowed everywhere: a later version may have added them. A file whose verdicts contradict its scores,
whose counts contradict its runs, or that holds a run twice, was changed by hand or merged, and is refused by both:
comparisons would be wrong.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_osmosis.errors import ResultsError
from pytest_osmosis.files.reading import FileFault, open_file, read_text
from pytest_osmosis.files.strict_json import parsed
from pytest_osmosis.formats.codec import LARGEST, ShapeFault, check_version, decode, quoted
from pytest_osmosis.formats.events import NoteFields
from pytest_osmosis.models.prices import Price
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_notes import NO_NOTES, RunNotes
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.publish import SCHEMA_VERSION
from pytest_osmosis.results.totals import price_of
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.comparison import ChangedRow, Passes, RowRuns
from pytest_osmosis.verdicts.pass_rule import UNMEASURED, PassRule, reason_of

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

MOST_BYTES = 1 << 30
MOST_HEAD_CHARS = 1 << 22
DEEPEST = 100
"""The deepest nesting of results, which hold settings and numbers."""
ROWS = '  "rows": '
"""The beginning of the line where the rows begin; everything before it is small."""


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """One published run. `passed` is None if the run was not measured; `skipped` if its grader took it out.

    `notes` holds what user code reported besides scores.
    """

    id: RunId
    skipped: bool
    passed: bool | None
    cost_usd: float | None
    notes: RunNotes = NO_NOTES


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One published row with its runs; `digest` is the digest of its content."""

    index: int
    digest: str
    runs: Sequence[PublishedRun]


@dataclass(frozen=True, slots=True)
class PublishedHead:
    """The published numbers of one eval run, without its rows. Times are UTC, ISO 8601.

    `cost_usd` is that of rollouts, `judges_cost_usd` that of LLM judges, 0 without any; None if it is unknown.

    `git_commit` and `git_dirty` are None if they are unknown. `counted` are the runs of the eval's own model that the
    pass rate counts. `gates` are the states of its gates. `run_dir` is the run directory as it was written. `shard` is
    None for results that are not those of a shard. `replayed` is True if all answers came from a cassette.
    `pass_rate_interval` and `comparison`, the table over the entries of its config, are as published; None without one.
    """

    path: Path
    status: str
    stop_reason: str | None
    partial: bool
    started_at: str
    plan_digest: str
    total_rows: int
    total_runs: int
    selected: int
    pending: int
    measured: int
    pass_rate: float | None
    total_tokens: int
    duration_s: float
    cost_usd: float | None
    judges_cost_usd: float | None
    n_cost_unknown: int
    git_commit: str | None
    git_dirty: bool | None
    eval: str
    counted: int
    gates: Sequence[str]
    run_dir: str
    shard: Shard | None
    replayed: bool
    pass_rate_interval: Mapping[str, Any] | None
    comparison: Mapping[str, Any] | None

    @property
    def passed(self) -> int | None:
        """The number of runs that passed, of the `counted` ones, None if there are none."""
        return None if self.pass_rate is None else round(self.pass_rate * self.counted)

    @property
    def is_whole(self) -> bool:
        """True if all that was planned ran, and some of it was measured."""
        return not self.partial and self.status == "finished" and not self.pending and self.measured > 0


@dataclass(frozen=True, slots=True)
class PublishedResults(PublishedHead):
    """The published results of one eval run.

    `config` holds its settings as published. `changed_rows` holds the rows that changed, worse ones first, against
    "last_run", "baseline" and "rescored". `document` is the whole published object.
    """

    config: Mapping[str, Any]
    rows: Sequence[PublishedRow]
    changed_rows: Mapping[str, Sequence[ChangedRow]]
    document: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def pass_rule(self) -> PassRule:
        return _pass_rule(self.config)

    @property
    def is_selection(self) -> bool:
        """True if runs were left out that could have been selected; a shard leaves out none of its rows."""
        return self.partial and (self.shard is None or not self.document["shard"]["whole"])

    def row_runs(self) -> list[RowRuns]:
        """Return the rows as `Results.row_runs` does, but for those of which no run has ended."""
        return [
            RowRuns(row.index, row.digest, [run.passed for run in _own(row) if not run.skipped]) for row in self.rows
        ]

    def measured_runs(self) -> dict[RunId, bool]:
        """Return for each measured run of the eval's own model whether it passed."""
        return {run.id: run.passed for row in self.rows for run in _own(row) if run.passed is not None}

    def cost_of(self, run: RunId) -> float | None:
        """Return the cost of one run, None if it is not known."""
        runs = (published for row in self.rows if row.index == run.row for published in row.runs)
        return next((published.cost_usd for published in runs if published.id == run), None)


def _own(row: PublishedRow) -> Iterator[PublishedRun]:
    return (run for run in row.runs if not run.id.is_baseline)


class PublishedSettings(NamedTuple):
    """The published settings by which runs pass and tokens are paid; a model's price is None if it is not known."""

    pass_rule: PassRule
    prices: Mapping[ModelTag, Price | None]


_OWN_KEYS = {"schema_version", "status", "config", "summary", "provenance"}
_MOST_FOREIGN_BYTES = 10_000_000


def is_results(path: Path) -> bool:
    """Return True for a results file of any version: a JSON object that has our keys.

    Of a large file only the beginning is read, which must look as we write it.
    """
    try:
        with open_file(path) as file:
            text = file.read(_MOST_FOREIGN_BYTES).decode(errors="replace")
        if len(text) < _MOST_FOREIGN_BYTES:
            data = json.loads(text)
            return isinstance(data, dict) and data.keys() >= _OWN_KEYS
        return text.startswith('{\n  "schema_version": ')
    except (FileFault, OSError, ValueError, RecursionError):
        return False


def read_results(path: Path) -> PublishedResults:
    """Read results that the user named. Raises `ResultsError` with the place in the file if they are not valid."""
    data = _load(path)
    _validate(path, data)
    return _results(path, data)


def read_earlier_results(path: Path) -> PublishedResults:
    """Read results of an earlier run. Raises `ResultsError` if a member is missing or has the wrong type."""
    return _results(path, _load(path))


def shard_at(path: Path) -> Shard | None:
    """Return the shard whose results are at `path`, None for other results, and for a file that cannot be read."""
    try:
        return read_head(path).shard
    except ResultsError:
        return None


def read_head(path: Path) -> PublishedHead:
    """Read the head of results without parsing their rows. Raises `ResultsError` if it is not valid."""
    return _head(path, _head_text(path))


def read_head_of_plan(path: Path, digest: str) -> PublishedHead | None:
    """Read the head of results, None if their plan has another digest. Raises `ResultsError` if it is not valid."""
    text = _head_text(path)
    head = _head(path, text) if digest in text else None
    return head if head is not None and head.plan_digest == digest else None


def read_settings(path: Path) -> PublishedSettings:
    """Read settings from the head of results. Raises `ResultsError` if they are not valid."""
    try:
        data = parsed(_head_text(path), deepest=DEEPEST)
        models = {model["model_tag"]: model["price"] for model in data.get("model_summaries", ())}
        prices = {ModelTag.PRIMARY: data["config"]["price"], ModelTag.BASELINE: models.get(ModelTag.BASELINE)}
        return PublishedSettings(_pass_rule(data["config"]), {tag: price_of(price) for tag, price in prices.items()})
    except ValueError as error:
        raise _unreadable(path, error) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise _incomplete(path, error) from None


def _head_text(path: Path) -> str:
    lines: list[str] = []
    try:
        with open_file(path) as raw, TextIOWrapper(raw, encoding="utf-8") as file:
            left = MOST_HEAD_CHARS
            while line := file.readline(left):
                if line.startswith(ROWS):
                    return "".join(lines).rstrip().rstrip(",") + "}"
                lines.append(line)
                left -= len(line)
                if left <= 0:
                    raise ValueError(f"more than {MOST_HEAD_CHARS:,} characters come before its rows")
    except (FileFault, OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return "".join(lines)


def _load(path: Path) -> dict[str, Any]:
    try:
        data = parsed(read_text(path, most_bytes=MOST_BYTES), deepest=DEEPEST)
    except (FileFault, ValueError) as error:
        raise _unreadable(path, error) from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ResultsError(f"{shown(path)}: not results of pytest-osmosis: it has no schema_version")
    _check_version(path, data)
    return data


def _check_version(path: Path, data: Mapping[str, Any]) -> None:
    try:
        check_version(data, SCHEMA_VERSION)
    except ShapeFault as fault:
        raise ResultsError(f"{shown(path)}: {fault}") from None


def _unreadable(path: Path, error: Exception) -> ResultsError:
    text = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else f"is not JSON: {error}"
    text = str(error) if isinstance(error, FileFault) else text
    return ResultsError(f"{shown(path)}: {text}")


def _validate(path: Path, data: dict[str, Any]) -> None:
    """Raise `ResultsError` with the first place where `data` does not match the schema.

    jsonschema takes nine seconds for 20,000 runs, so of all runs and rows that the schema cannot tell apart one is
    validated.
    """
    from jsonschema import Draft202012Validator

    schema = _open(json.loads(files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8")))
    names = ("row", "run", "changed_row")
    parts = {name: Draft202012Validator({**schema["$defs"][name], "$defs": schema["$defs"]}) for name in names}
    lists = {key: data[key] for key in ("rows", "changed_rows") if isinstance(data.get(key), list)}
    _check(path, Draft202012Validator(schema), "", {**data, **{key: [] for key in lists}})
    changed = ((f"changed_rows[{n}]", "changed_row", row) for n, row in enumerate(lists.get("changed_rows", [])))
    seen = set()
    for place, name, part in chain(_parts(lists["rows"]), changed):
        shape = (name, _shape(part))
        if shape not in seen:
            _check(path, parts[name], place, part)
            seen.add(shape)


def _open(schema: Any) -> Any:
    """Return the schema without `"additionalProperties": false`."""
    if isinstance(schema, dict):
        members = {key: _open(value) for key, value in schema.items()}
        return {key: value for key, value in members.items() if (key, value) != ("additionalProperties", False)}
    return list(map(_open, schema)) if isinstance(schema, list) else schema


def _parts(rows: Sequence[Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield place, name in the schema and value of each row, with its first run only, and of each run."""
    for number, row in enumerate(rows):
        runs = row.get("runs") if isinstance(row, dict) else None
        if not isinstance(runs, list):
            yield f"rows[{number}]", "row", row
            continue
        yield f"rows[{number}]", "row", {**row, "runs": runs[:1]}
        yield from ((f"rows[{number}].runs[{index}]", "run", run) for index, run in enumerate(runs))


def _shape(value: Any, key: str = "") -> Any:
    """Return everything about a value that the schemas of rows and runs can tell apart.

    They ask for types, keys, words of an enumeration, digests, and bounds of 0 and 1. Of texts and fields that user
    code made, which are different in each run, they ask only for the types of the members.
    """
    kind = type(value)  # exactly one of those of JSON, which is quicker than to ask for instances
    if kind is str:
        return value if len(value) < _LONGEST_WORD else _DIGEST.fullmatch(value) is not None
    if kind is float or kind is int:
        return kind, value == int(value), value > 0, value < 0
    if kind is dict:
        if key in ("reasons", "fields"):
            return dict, frozenset(map(type, value.values()))
        return dict, *[(name, _shape(member, name)) for name, member in value.items()]
    if kind is list:
        return list, *map(_shape, value)
    return kind, value


_DIGEST = re.compile("[0-9a-f]{16}")
_LONGEST_WORD = 16


def _check(path: Path, validator: Validator, place: str, value: Any) -> None:
    from jsonschema.exceptions import best_match

    error = best_match(validator.iter_errors(value))
    if error is not None:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
        where = (place + "".join(steps)).removeprefix(".")
        raise ResultsError(f"{shown(path)}: {where}{': ' if where else ''}{_fault(error)}")


def _fault(error: ValidationError) -> str:
    if error.validator == "required":
        return f"lacks {error.message.split(chr(39))[1]}"
    if error.validator == "type":
        kinds: Any = error.validator_value
        types = [kinds] if isinstance(kinds, str) else kinds
        return f"{quoted(error.instance)} is not {' or '.join(_KINDS.get(kind, kind) for kind in types)}"
    if error.validator in ("enum", "minimum", "maximum", "const"):
        return one_line(error.message)
    return f"{quoted(error.instance)} is not valid ({error.validator})"


_KINDS = {
    "array": "an array",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}


def _results(path: Path, data: Mapping[str, Any]) -> PublishedResults:
    try:
        results = PublishedResults(
            **_head_members(path, data),
            config=_typed(data["config"], dict),
            rows=list(map(_row, data["rows"])),
            changed_rows=changed_rows_of(data["changed_rows"]),
            document=data,
        )
        contradiction = (
            _repeated(results.rows) or _contradiction(_pass_rule(results.config), data["rows"]) or _miscounted(data)
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _incomplete(path, error) from None
    if contradiction is not None:
        raise ResultsError(f"{shown(path)}: {contradiction}")
    return results


def _pass_rule(config: Mapping[str, Any]) -> PassRule:
    """Return the rule of published settings, each member of which has its type."""
    thresholds = _typed(config["thresholds"], dict)
    return PassRule(
        tuple(_typed(name, str) for name in _typed(config["eval_fns"], list)),
        _number(config["pass_threshold"]),
        {name: _number(threshold) for name, threshold in thresholds.items()},
        _typed(config["decide"], str),
        {
            name: (_number(low), _number(high))
            for name, (low, high) in _typed(config.get("score_ranges", {}), dict).items()
        },
    )


def _repeated(rows: Sequence[PublishedRow]) -> str | None:
    """Return which row or run is there twice, None if each is there once."""
    places: dict[int, int] = {}
    for number, row in enumerate(rows):
        first = places.setdefault(row.index, number)
        if first != number:
            return f"rows[{number}]: row {row.index} is there already, as rows[{first}]"
        ids = [run.id for run in row.runs]
        if len(set(ids)) < len(ids):
            index = next(index for index, id in enumerate(ids) if id in ids[:index])
            return f"rows[{number}].runs[{index}]: {ids[index]} is there already, as runs[{ids.index(ids[index])}]"
    return None


def _miscounted(data: Mapping[str, Any]) -> str | None:
    """Return which count of the summary contradicts the runs, None if none does."""
    runs = chain(chain.from_iterable(row["runs"] for row in data["rows"]), data["pending"])
    found = Counter(run.get("status", "pending") for run in runs if run.get("model_tag") != ModelTag.BASELINE)
    for status in ("finished", "failed", "skipped", "pending"):
        counted = _typed(data["summary"][status], int)
        if counted != found[status]:
            return f"summary.{status} is {counted:,}, but the file holds {plural(found[status], 'such run')}"
    return None


def _contradiction(rule: PassRule, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return which run's verdict contradicts its scores and thresholds, None if none does."""
    for number, row in enumerate(rows):
        for index, run in enumerate(row["runs"]):
            fault = _contradictory(rule, run)
            if fault is not None:
                return f"rows[{number}].runs[{index}]: {fault}"
    return None


def _contradictory(rule: PassRule, run: Mapping[str, Any]) -> str | None:
    status, boundary = run["status"], run.get("boundary")
    scores = {name: _number(score) for name, score in _typed(run["scores"], dict).items()}
    record = RunRecord(
        RunId(0, 0),
        rolled=True,
        scored=True,
        removed=status == "skipped",
        scores=scores,
        boundary=(boundary or "agent") if status == "failed" else None,
    )
    missing = ", ".join(rule.broken(record))
    fits = boundary in UNMEASURED if missing else boundary is None  # "provider" if a judge could not be asked
    if status == "finished" and not fits:
        why = f"there is no score of {missing}" if missing else "there is a score"
        return f"its boundary is {json.dumps(boundary)}, but {why}"
    if run["passed"] != rule.passed(record):
        reason = reason_of(record, rule) or "its scores reach the thresholds"
        why = reason if status == "finished" else f"its status is {status}"
        return f"passed is {json.dumps(run['passed'])}, but {why}"
    return None


def _head(path: Path, text: str) -> PublishedHead:
    try:
        return head_of(path, parsed(text, deepest=DEEPEST))
    except ValueError as error:
        raise _unreadable(path, error) from None


def head_of(path: Path, data: Mapping[str, Any]) -> PublishedHead:
    """Return the head of a published object. Raises `ResultsError` if a member is missing or has the wrong type."""
    try:
        _check_version(path, data)
        return PublishedHead(**_head_members(path, data))
    except (KeyError, TypeError, AttributeError) as error:
        raise _incomplete(path, error) from None


def _incomplete(path: Path, error: Exception) -> ResultsError:
    text = f"lacks {error}" if isinstance(error, KeyError) else one_line(str(error))
    return ResultsError(f"{shown(path)}: {text}")


_COUNTS = ("total_rows", "total_runs", "selected", "pending", "measured", "total_tokens")


def _head_members(path: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    summary, provenance = data["summary"], data["provenance"]
    return {
        "path": path,
        "status": _typed(data["status"], str),
        "stop_reason": _typed(data.get("stop_reason"), str, NoneType),
        "partial": _typed(data["partial"], bool),
        "started_at": _typed(provenance["started_at"], str),
        "plan_digest": _typed(provenance["plan_digest"], str),
        **{name: _typed(summary[name], int) for name in _COUNTS},
        "pass_rate": _typed(summary["pass_rate"], float, int, NoneType),
        "duration_s": _typed(summary["total_duration_ms"], float, int) / 1000,
        "cost_usd": _typed(summary["cost_usd"], float, int, NoneType),
        "n_cost_unknown": _typed(summary["cost_unknown"], int),
        "git_commit": _typed(provenance.get("git_commit"), str, NoneType),
        "git_dirty": _typed(provenance.get("git_dirty"), bool, NoneType),
        "eval": _typed(data["config"]["name"], str),
        "counted": _typed(summary["finished"], int) + _typed(summary["failed"], int),
        "judges_cost_usd": _typed(summary.get("judges", {"cost_usd": 0.0})["cost_usd"], float, int, NoneType),
        "shard": _shard(data.get("shard")),
        "run_dir": _typed(provenance["run_dir"], str),
        "gates": [_typed(gate["state"], str) for gate in _typed(data["gates"], list)],
        "replayed": _typed(_typed(provenance.get("cassette", {}), dict).get("mode"), str, NoneType) == "replay",
        "pass_rate_interval": _typed(summary["pass_rate_interval"], dict, NoneType),
        "comparison": _typed(data.get("comparison"), dict, NoneType),
    }


def _shard(shard: Mapping[str, Any] | None) -> Shard | None:
    return None if shard is None else Shard(_typed(shard["index"], int), _typed(shard["of"], int))


def _row(row: Mapping[str, Any]) -> PublishedRow:
    index = _typed(row["row_index"], int)
    return PublishedRow(index, _typed(row["row_digest"], str), [_run(index, run) for run in row["runs"]])


def _run(row: int, run: Mapping[str, Any]) -> PublishedRun:
    tag = ModelTag.BASELINE if run.get("model_tag") == ModelTag.BASELINE else ModelTag.PRIMARY
    skipped = _typed(run["status"], str) == "skipped"
    measured = not skipped and run.get("boundary") not in UNMEASURED
    return PublishedRun(
        RunId(row, _typed(run["run_index"], int), tag),
        skipped,
        _typed(run["passed"], bool) if measured else None,
        _typed(run["cost_usd"], float, int, NoneType),
        _notes(run),
    )


def _notes(run: Mapping[str, Any]) -> RunNotes:
    try:
        decode(run, NoteFields)
    except ShapeFault as fault:
        raise TypeError(str(fault)) from None
    return NO_NOTES.add(run)


def changed_rows_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[ChangedRow]]:
    changed: dict[str, list[ChangedRow]] = {}
    for row in rows:
        now, then = (
            Passes(_typed(row[f"{when}passed"], int), _typed(row[f"{when}measured"], int)) for when in ("", "earlier_")
        )
        indices = _typed(row["row_index"], int), _typed(row["earlier_row_index"], int)
        changed.setdefault(_typed(row["against"], str), []).append(ChangedRow(*indices, now, then))
    return changed


def _number(value: Any) -> Any:
    """Return a score, a threshold or an end of a range: any finite number."""
    return _typed(value, float, int, largest=sys.float_info.max)


def _typed(value: Any, *types: type, largest: float = LARGEST) -> Any:
    """Return `value` if it has one of `types`; a boolean is not a number. Counts, times and costs have a bound."""
    fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if not fits or (isinstance(value, (int, float)) and abs(value) > largest):
        raise TypeError(f"{quoted(value)} is not valid")
    return value
