"""Resume what `prime eval` left (`--osmosis-resume-from=DIR`), of verifiers 0.4 its `traces`.

Files that we wrote belong to an eval run of ours, which is resumed by its own journal. Files of verifiers are imported:
their rollouts become those of a new eval run, which journals them before it makes the others. Those that ended with an
error are made again. An environment's reward counts as it is stored; an ordinary eval scores imported rollouts itself.

Lines end at "\\n" alone, since texts of models may hold other line ends. A torn last line, which a crash leaves, is
passed over. `prime_files` writes such files, and says where their format is from.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypedDict

from msgspec.structs import replace

from pytest_osmosis.addons.verifiers.client import tool_call
from pytest_osmosis.addons.verifiers.hosted import boundary_of
from pytest_osmosis.addons.verifiers.prime_files import METADATA, MOST_METADATA_BYTES, REWARD, eval_run_of
from pytest_osmosis.addons.verifiers.traces import SETTINGS, answering, line_of, metadata_of, scored_in
from pytest_osmosis.errors import JournalError, OsmosisError, ProblemsError
from pytest_osmosis.evals.eval_models import request_sampling
from pytest_osmosis.evals.resume import ResumeRequest, resumed, why_no_name
from pytest_osmosis.evals.rollout_source import NewRollouts, PartlyStored
from pytest_osmosis.evals.run_directory import changed_value, new_run_directory, runs_folder
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import DEEPEST, FileFault, JsonFault, depth, open_file, read_text, something_at
from pytest_osmosis.formats.codec import LARGEST, Amount, Count, Positive, decode
from pytest_osmosis.record.find_run import RESULTS, TRACES, is_run
from pytest_osmosis.record.journal import Journal, encode
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.stored_rollouts import Resumption, StoredProgress
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.user_code import error_in_words

if TYPE_CHECKING:
    from pytest_osmosis.evals.prepared import Prepared


OPTION = "--osmosis-resume-from"
MOST_LISTED = 5
Event = dict[str, Any]
Line = Mapping[str, Any]


def resumed_from(prepared: Prepared, folder: Path, name: str | None) -> Prepared:
    """Return an eval that resumes the files in a folder; `name` is that of a new run. Raises `ProblemsError`."""
    where, folder = f"{OPTION}={shown(folder)}", folder.parent if folder.is_file() else folder
    own = eval_run_of(folder)
    if own is not None and why_no_name(own) is None and is_run(runs_folder(prepared.config) / own):
        if name is not None and name != own:
            text = f"holds the files of run {own}, which is resumed under its own name; leave out --osmosis-run"
            raise ProblemsError.at(where, text)
        return resumed(prepared, ResumeRequest(own, only_resumes=True))
    try:
        imported = _Import(prepared, read_prime_run(folder, prepared.config.environment.arguments))
        source = None if imported.differences else imported.source(name)
    except OsmosisError as error:
        raise ProblemsError.at(where, str(error)) from None
    if source is None:
        lines = "\n".join(f"  {line}" for line in imported.differences)
        fix = "undo that, or begin a new eval run without this option"
        text = f"cannot be resumed, because its rollouts were made with other inputs:\n{lines}\n{fix}"
        raise ProblemsError.at(where, text)
    return replace(prepared, source=source, notes=(*prepared.notes, *imported.notes))


@dataclass(frozen=True, slots=True)
class ImportedRollouts(PartlyStored):
    """Rollouts from files of `prime eval`, with which a new eval run begins; it makes the others itself.

    `journal` holds their events until the run has a directory. `facts` is what results say of the files.
    """

    journal: Path = field(kw_only=True)
    facts: Mapping[str, Any] = field(kw_only=True)

    @property
    def origin(self) -> str:
        return str(self.facts["folder"])

    def open_run(self, prepared: Prepared, began_at: datetime) -> tuple[RunDirectory, Journal]:
        directory = new_run_directory(prepared, began_at, self.name, imported=self.facts)
        try:
            with open(directory.journal, "xb", opener=private.opener) as file, self.journal.open("rb") as imported:
                shutil.copyfileobj(imported, file)
            self.resumption.progress.moved(directory.journal)
            return directory, Journal.reopen(directory.journal)
        except OSError as error:
            self.discard(directory)
            raise JournalError(f"{shown(directory.journal)}: cannot be written: {error.strerror}") from error

    def provenance(self, began_at: datetime) -> Mapping[str, Any]:
        return {**NewRollouts.provenance(self, began_at), "imported": dict(self.facts)}


class _Import:
    """The comparison of files with a prepared eval. `differences` are reasons why it cannot resume them."""

    def __init__(self, prepared: Prepared, found: PrimeRun) -> None:
        self._prepared = prepared
        self._found = found
        self._is_environment = prepared.environment is not None
        self.notes: list[str] = []
        self._n_redone = 0
        self.differences = list(self._changed_settings())
        self._taken = [] if self.differences else self._matched()

    def source(self, name: str | None) -> ImportedRollouts:
        """Return the rollouts that are taken over, in a journal that is removed with them unless a run takes it."""
        folder = Path(tempfile.mkdtemp(prefix="pytest-osmosis-import-"))
        journal = folder / "journal.jsonl"
        try:
            with open(journal, "wb", opener=private.opener) as file:
                file.writelines(map(encode, self._events()))
            progress = StoredProgress(journal)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        version = (self._found.metadata.get("version_info") or {}).get("vf_version")
        facts = {
            "folder": shown(self._found.folder),
            "runs": len(self._taken),
            "redone": self._n_redone,
            "verifiers": version if isinstance(version, str) and version else None,
        }
        source = ImportedRollouts(name, resumption=Resumption(progress), journal=journal, facts=facts)
        weakref.finalize(progress, shutil.rmtree, folder, ignore_errors=True)
        return source

    # -- what must be the same -------------------------------------------------------------------------------

    def _changed_settings(self) -> Iterator[str]:
        prepared, then = self._prepared, self._found.metadata
        config = prepared.config
        env_id = config.environment.env_id or config.name
        if _module(then["env_id"]) != _module(env_id):
            yield changed_value("env_id", then["env_id"], env_id)
        if then["model"] not in (config.experiment.model_path, prepared.models.target.model):
            yield changed_value("model", then["model"], config.experiment.model_path)
        facts = prepared.environment
        if "settings" in then:
            given_then, given = answering(then["settings"]), answering({} if facts is None else facts.config)
        else:
            given_then, given = (
                {"env_args": each or {}} for each in (then.get("env_args"), config.environment.arguments)
            )
        sampling = {**({} if facts is None else _flat(facts.sampling)), **_flat(request_sampling(config))}
        for was, now in ((given_then, given), (_flat(then.get("sampling_args") or {}), sampling)):
            title = "sampling_args " if now is sampling else ""
            differing = [key for key in dict.fromkeys([*was, *now]) if was.get(key) != now.get(key)]
            yield from (changed_value(f"{title}{key}", was.get(key), now.get(key)) for key in differing)
        n_then, n = then.get("rollouts_per_example", 1), config.evaluation.n
        if n_then > n:
            yield f"{changed_value('rollouts_per_example', n_then, n)}, and it may only grow"

    # -- which lines are taken over --------------------------------------------------------------------------

    def _matched(self) -> list[tuple[RunId, Line]]:
        """Return the lines of selected rows that ended well, each with its run. Adds to notes and differences."""
        prepared, n = self._prepared, self._prepared.config.evaluation.n
        rows = {json.dumps(self._example(row)): row for row, _ in prepared.collected.rows()}
        taken: dict[int, dict[int, Line]] = defaultdict(dict)
        n_left_out, changed = 0, list[str]()
        for line in self._found.lines:
            row = rows.get(json.dumps(line["example_id"]))
            free = [index for index in range(n) if row is not None and index not in taken[row]]
            if row is not None and has_failed(line):
                self._n_redone += 1
            elif row is None or not free:
                n_left_out += 1
            elif not self._asks_the_same(row, line):
                changed.append(str(line["example_id"]))
            else:
                taken[row][line["run_index"] if line.get("run_index") in free else free[0]] = line
        is_grouped = prepared.environment is not None and prepared.environment.grouped
        incomplete = [row for row, lines in taken.items() if is_grouped and len(lines) < n]
        n_incomplete = sum(len(taken.pop(row)) for row in incomplete)
        if changed:
            self.differences.append(f"the prompt of example {listed(dict.fromkeys(changed), MOST_LISTED)}: changed")
        for n_rollouts, text in (
            (self._n_redone, "made again, because they ended with an error"),
            (n_incomplete, "made again: a reward function needs all runs of a row, which these rows lack"),
            (n_left_out, f"left out: of examples that are not selected, or beyond the {n} of an example"),
        ):
            self.notes += [f"{plural(n_rollouts, 'rollout')} in the files: {text}"] if n_rollouts else []
        if self._found.torn:
            self.notes.append(f"the last line of {self._found.name} is torn and was passed over")
        return [(RunId(row, index), taken[row][index]) for row in sorted(taken) for index in sorted(taken[row])]

    def _example(self, row: int) -> Any:
        """Return the id of a row: that of an environment's example, or its place."""
        return self._prepared.dataset.row(row).record.get("example_id", row) if self._is_environment else row

    def _asks_the_same(self, row: int, line: Line) -> bool:
        """Return True if the row's last question is in the line's prompt; environments may add to a prompt."""
        found = self._prepared.dataset.row(row)
        if line.get("task_key") not in (None, (found.record.get("input") or {}).get("key")):
            return False
        now = [text_of(message.get("content")) for message in found.messages]
        then = [text_of(message.get("content")) for message in prompt_of(line)]
        return not now or any(now[-1].strip() in text for text in then)

    def _events(self) -> Iterator[Event]:
        rows, value = self._prepared.rows, self._prepared.redaction.value
        selected = sorted({run.row for run, _ in self._taken})
        contents = {row: rows.contents[row] for row in selected}
        digests = {row: rows.digests[row] for row in selected}
        events = events_of(self._found, self._taken, contents, digests, is_environment=self._is_environment)
        return (value(event, unchanged=_OURS) for event in events)


_OURS = frozenset({"ev", "imported", "scorers", "scores", "rows", "digests"})
"""The members of events whose texts are our own."""


def events_of(
    found: PrimeRun,
    lines: Iterable[tuple[RunId, Line]],
    contents: Mapping[int, Sequence[str]],
    digests: Mapping[int, str],
    *,
    is_environment: bool,
) -> Iterator[Event]:
    """Yield the events on the runs of lines. `contents` and `digests` are those of their rows."""
    yield {"ev": "loaded", "scorers": [REWARD] if is_environment else [], "digests": {}}
    rows = {str(row): list(content) for row, content in contents.items()}
    yield {"ev": "rows", "rows": rows, "digests": {str(row): digest for row, digest in digests.items()}}
    for run, line in lines:
        yield _rollout(found, run, line, is_environment=is_environment)
        if is_environment and not has_failed(line):
            yield _score(run, line)


def _rollout(found: PrimeRun, run: RunId, line: Line, *, is_environment: bool) -> Event:
    """Return the event on the rollout of a line."""
    return {
        "ev": "rollout",
        **run.to_json(),
        "attempt": 1,
        "ms": took_ms(line, "generation"),
        "messages": [*prompt_of(line), *_messages(line.get("completion"), "assistant")],
        "n_prompt": len(prompt_of(line)),
        "finish_reason": "length" if line.get("is_truncated") is True else None,
        "usage": usage_of(line),
        "imported": {"folder": shown(found.folder), "scores": [REWARD] if is_environment else []},
        **({"environment": _environment(found, line)} if is_environment else {}),
        **(_failure(line) if has_failed(line) else {}),
    }


def _failure(line: Line) -> dict[str, str]:
    """Return why a rollout broke, at which boundary."""
    error = line.get("error") or {"error": "it has no reward", "error_chain_str": "RewardError"}
    told = error if isinstance(error, Mapping) else {"error": str(error)}
    return {"boundary": boundary_of(told), "error": str(told.get("error_chain_repr") or told.get("error"))}


def _environment(found: PrimeRun, line: Line) -> dict[str, Any]:
    """Return what a line says of its rollout besides the conversation. Of its trajectory it says nothing."""
    columns = found.metadata.get("state_columns") or []
    given = {name: line[name] for name in _OF_ENVIRONMENT if line.get(name) is not None}
    shown_columns = {name: line[name] for name in columns if name in line}
    kept = line.get("kept") or shown_columns
    state = {"n_prompt": len(prompt_of(line)), "unkept": ["trajectory"], **({"kept": kept} if kept else {})}
    return {**given, **({"columns": shown_columns} if shown_columns else {}), "state": state}


def _score(run: RunId, line: Line) -> Event:
    """Return the event on the score of a line."""
    told = {name: number(value) for name, value in (line.get("metrics") or {}).items()}
    metrics = {name: value for name, value in told.items() if value is not None}
    return {
        "ev": "score",
        **run.to_json(),
        "attempt": 1,
        "ms": took_ms(line, "scoring"),
        "scores": {REWARD: line["reward"]},
        "errors": {},
        "output": {},
        "ground_truth": line.get("answer"),
        **({"metrics": {REWARD: metrics}} if metrics else {}),
    }


_OF_ENVIRONMENT = (
    *("example_id", "info", "task", "timing", "is_completed", "is_truncated", "stop_condition", "tool_defs"),
    "token_usage",
)


def _module(env_id: str) -> str:
    """Return the module of an environment's id.

    >>> _module("primeintellect/math-python@1.0")
    'math_python'
    """
    return env_id.partition("@")[0].rpartition("/")[2].replace("-", "_")


def _flat(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return sampling arguments that are set, with those of `extra_body`. Seeds are left out, as each run has its own.

    >>> _flat({"n": 1, "max_tokens": None, "temperature": 0.5, "extra_body": {"top_k": 5}})
    {'temperature': 0.5, 'top_k': 5}
    """
    body = sampling.get("extra_body")
    flat = {**sampling, **body, "extra_body": None} if isinstance(body, Mapping) else sampling
    return {key: value for key, value in flat.items() if key not in ("seed", "n") and value is not None}


MOST_LINE_BYTES = 1 << 27


class MetadataFields(TypedDict):
    """The members of metadata.json that are read."""

    env_id: str
    model: str
    env_args: NotRequired[Mapping[str, Any] | None]
    sampling_args: NotRequired[Mapping[str, Any] | None]
    rollouts_per_example: NotRequired[Positive]
    num_examples: NotRequired[Count]
    state_columns: NotRequired[Sequence[str] | None]
    version_info: NotRequired[Mapping[str, Any] | None]
    time: NotRequired[Amount]


class LineFields(TypedDict):
    example_id: Any
    reward: NotRequired[float | None]
    metrics: NotRequired[Mapping[str, Any] | None]
    run_index: NotRequired[Count]
    timing: NotRequired[Mapping[str, Any]]


class PrimeRun(NamedTuple):
    """The files of one run of `prime eval`, with its lines in `name`. `torn` says that the last one was passed over."""

    folder: Path
    name: str
    metadata: Mapping[str, Any]
    lines: Sequence[Line]
    torn: bool


def has_failed(line: Line) -> bool:
    """Return True if the rollout of a line ended with an error, or has no reward."""
    return line.get("error") is not None or line.get("reward") is None


def prompt_of(line: Line) -> list[dict[str, Any]]:
    """Return the prompt of a line in the shape of chat completions."""
    return _messages(line.get("prompt"), "user")


def usage_of(line: Line) -> dict[str, int] | None:
    found = line.get("token_usage")
    told = found if isinstance(found, Mapping) else {}
    counts = {name: number(told.get(name), 0, LARGEST) for name in ("input_tokens", "output_tokens")}
    return {name: int(count) for name, count in counts.items() if count is not None} or None


def took_ms(line: Line, phase: Literal["generation", "scoring"]) -> float:
    """Return the time of a phase, 0 if it is not known."""
    timing = line.get("timing") or {}
    span = timing.get(phase)
    seconds = number(span.get("duration"), 0, LARGEST) if isinstance(span, Mapping) else None
    return (number(timing.get(f"{phase}_ms"), 0, LARGEST) if seconds is None else min(seconds * 1000, LARGEST)) or 0.0


def number(value: object, least: float = -sys.float_info.max, most: float = sys.float_info.max) -> float | None:
    """Return a number within bounds, None for anything else."""
    return float(value) if isinstance(value, int | float) and least <= value <= most else None


def _messages(found: object, role: str) -> list[dict[str, Any]]:
    """Return messages whose tool calls are those of chat completions; a text is a message of `role`."""
    if isinstance(found, str):
        return [{"role": role, "content": found}]
    if not isinstance(found, Sequence):
        return []
    return [_message(message) for message in found if isinstance(message, Mapping)]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with those of its tool calls that can be read."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    readable = []
    for call in calls:
        with suppress(ValueError):
            readable.append(tool_call(call))
    return {**message, "tool_calls": readable}


def read_prime_run(folder: Path, env_args: Mapping[str, Any] = MappingProxyType({})) -> PrimeRun:
    """Read the files in a folder. `env_args` can name the scored agent. Raises `OsmosisError` with file and line."""
    if not folder.is_dir():
        raise OsmosisError(f"{shown(folder)}: there is no such folder; name one that holds {RESULTS} and {METADATA}")
    if something_at(folder / TRACES):
        name, metadata = TRACES, _metadata(folder / SETTINGS, metadata_of)
        scored = scored_in(metadata["settings"], env_args)
        lines = list(_lines(folder / TRACES, lambda episode: line_of(episode, scored)))
    else:
        name, metadata = RESULTS, _metadata(folder / METADATA)
        lines = list(_lines(folder / RESULTS))
    torn = bool(lines) and lines[-1] is None
    return PrimeRun(folder, name, metadata, [line for line in lines if line is not None], torn)


Read = Callable[[Any], Mapping[str, Any]]
"""Makes the members of prime's file of the JSON in another one."""


def _read(text: str, read: Read | None, shape: Any) -> Mapping[str, Any]:
    """Return the members in a JSON text, or those that `read` makes of it. Raises `ValueError`."""
    try:
        value = DECODER.decode(text)
        if len(text) > DEEPEST and depth(value) > DEEPEST:
            raise RecursionError
        value = value if read is None else read(value)
    except RecursionError:
        raise JsonFault(f"it is nested deeper than {DEEPEST}") from None
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"is not as verifiers writes it: {error_in_words(error)}") from None
    decode(value, shape)
    return value


def _finite(text: str) -> float | None:
    return value if math.isfinite(value := float(text)) else None


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=lambda constant: None)
"""Reads JSON as Python writes it: numbers that are not finite become None."""


def _metadata(path: Path, read: Read | None = None) -> Mapping[str, Any]:
    try:
        return _read(read_text(path, most_bytes=MOST_METADATA_BYTES), read, MetadataFields)
    except (FileFault, ValueError) as error:
        raise OsmosisError(f"{shown(path)}: {error}") from None


def _lines(path: Path, read: Read | None = None) -> Iterator[Line | None]:
    """Yield the lines of a file as those of results.jsonl, None at the end for one that is torn."""
    try:
        with open_file(path) as file:
            for number in count(1):
                raw = file.readline(MOST_LINE_BYTES)
                if not raw:
                    return
                if not raw.strip():
                    continue
                try:
                    line = _read(raw.decode("utf-8"), read, LineFields)
                except ValueError as error:
                    if file.readline(1):
                        raise OsmosisError(f"{shown(path)}:{number}: {error}") from None
                    yield None
                    return
                yield line
    except FileFault as fault:
        raise OsmosisError(f"{shown(path)}: {fault}") from None
