"""The files of `prime eval`: results.jsonl, a line for each run that ended, and metadata.json.

For a taskset of verifiers 0.4 they are its own: `traces` in place of lines, and its settings besides.
All are made from the manifest and the journal of any stored eval run, so that programs that read the files of
`prime eval` read ours. Source: the page on evaluation of verifiers 0.1.13, and `save_utils.py` of verifiers 0.1.14.
They differ from theirs in this:

- all numbers are finite, and a metric never replaces a member of its line
- `run_index` tells the runs of an example apart, and `timing` has the members of both versions
- a run without a score has the reward 0.0 and says why in `error`
- `osmosis` in metadata.json names our eval run

They can be pushed to the Hugging Face Hub; whatever happens there, the eval run stays as it is.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, TypedDict
from urllib.parse import urlsplit

from pytest_osmosis.addons.verifiers.traces import SETTINGS, episode_of, settings_of
from pytest_osmosis.addons.viewer.stored_results import LastTerms, Replayed, replayed
from pytest_osmosis.errors import OsmosisError, writing
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import FileFault, open_file, parsed, read_text, something_at
from pytest_osmosis.formats.codec import ShapeFault, decode
from pytest_osmosis.models.providers import SERVICES
from pytest_osmosis.record.find_run import RESULTS, TRACES, StoredEvalRun, stored
from pytest_osmosis.record.journal import EventReader, events_from
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId, plan_order
from pytest_osmosis.record.run_record import Event, RunRecord
from pytest_osmosis.results.publish import replacing, why_not_writable
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.pass_rule import PassRule, reward_error

METADATA = "metadata.json"
REWARD = "reward"
"""The name of the score that a Grader or an environment gives."""
PAUSE_S = 1.0
"""While an eval runs, lines are added no more often."""
SCHEMA_VERSION = 1
MOST_METADATA_BYTES = 1 << 26
Line = dict[str, Any]

_MEMBERS = (
    *("example_id", "run_index", "prompt", "completion", "answer", "task", "info", "reward", "error", "timing"),
    *("is_completed", "is_truncated", "stop_condition", "metrics", "tool_defs", "token_usage", "error_chain"),
    "long_error_chain",
)
"""The members of a line that no metric and no column of the state replaces."""
_OWN = frozenset({"run_index", "reward", "metrics", "is_completed", "is_truncated", "timing"})
_ERROR_NAME = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?::|$)")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]+")


def folder_of(run: StoredEvalRun, base: Path) -> Path:
    """Return the folder of an eval run's files below `base`, in which programs for `prime eval` look for them."""
    name = f"{env_id_of(run).rpartition('/')[2]}--{run.manifest.subject.model.replace('/', '--')}"
    return base / "evals" / _UNSAFE.sub("_", name)[:MOST_NAME_CHARS] / run.directory.name


def env_id_of(run: StoredEvalRun) -> str:
    """Return the id of an eval run's environment; of an ordinary eval its name."""
    return str(run.manifest.environment.get("env_id") or run.manifest.eval)


def eval_run_of(folder: Path) -> str | None:
    """Return the name of the eval run whose files a folder holds, None if another program wrote them."""
    try:
        own = parsed(read_text(folder / METADATA, most_bytes=MOST_METADATA_BYTES))["osmosis"]
        return own["run"] if isinstance(own["run"], str) else None
    except (FileFault, ValueError, KeyError, TypeError):
        return None


def write_prime_files(run: StoredEvalRun, folder: Path, redaction: Redaction) -> int:
    """Write the files, each whole or not at all, and return the number of lines.

    Only their owner may read them. Raises `OsmosisError` if the eval run cannot be read, and `OSError`.
    """
    found = replayed(run.directory.journal)
    if not found.ledger.scorers:
        raise OsmosisError(f"{run.directory.name}: holds no run: none had begun when it ended")
    files = _PrimeFiles(run, LastTerms.of(run, found.ledger.scorers).rule, redaction)
    with ExitStack() as stack:

        def write(name: str, lines: Iterable[str]) -> None:
            private.make_folders((folder / name).parent)
            private.write(stack.enter_context(replacing(folder / name, follows_link=False)), lines)

        write(files.name, files.lines(found))
        for name, text in files.further(found, folder).items():
            write(name, [text])
    return len(files.totals.rewards)


def save_prime_files(run: StoredEvalRun, base: Path, redaction: Redaction) -> Path:
    """Write both files below `base`, and return their folder. Raises as `write_prime_files` does."""
    folder = folder_of(run, base)
    write_prime_files(run, folder, redaction)
    return folder


def export_prime_files(run: StoredEvalRun, folder: Path, named: str, redaction: Redaction) -> str:
    """Write both files to a folder, and return the line that says so. Files of something else are not replaced.

    Raises `OsmosisError`, with the folder as the user `named` it.
    """
    results = results_name(run)
    for name in (results, METADATA):
        if (why_not := why_not_writable(folder / name)) is not None:
            raise OsmosisError(f"{named}: cannot be written: {why_not}")
    if something_at(folder / results) and eval_run_of(folder) != run.directory.name:
        raise OsmosisError(f"{named}: holds {results} of something else; name another folder")
    with writing(named):
        n_lines = write_prime_files(run, folder, redaction)
    return f"{shown(folder)}: {results} and {METADATA}, {plural(n_lines, 'run')} of {run.directory.name}"


class GrowingPrimeFiles:
    """Both files while an eval run goes on, so that a killed one leaves the rows whose `runs` are all done.

    A thread reads on in the journal and appends the lines of such rows, at most once each `PAUSE_S`; the first time it
    writes all rows that earlier sessions completed. A failure is left to those who write the files at the end.
    `rule` returns the rule by which runs pass, once one is done.
    """

    notice: ClassVar[None] = None

    def __init__(
        self,
        directory: RunDirectory,
        base: Path,
        runs: Iterable[RunId],
        rule: Callable[[], PassRule],
        redaction: Redaction,
    ) -> None:
        self._directory = directory
        self._base = base
        self._rule = rule
        self._redaction = redaction
        self._left = Counter(run.row for run in runs if not run.is_baseline)
        self._wake, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def run_done(self, run: RunId) -> None:
        """Let the thread write if this was the last run of its row. Returns at once."""
        self._left[run.row] -= not run.is_baseline
        if self._left[run.row] == 0 and not run.is_baseline:
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_on, name="osmosis-save-results", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write no more. Idempotent."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _write_on(self) -> None:
        found, journal, end, number = Replayed(), self._directory.journal, 0, 1
        written: set[int] | None = None
        with suppress(Exception):  # also a defect of ours: a thread has nobody to tell
            run = stored(self._directory)
            folder, files = folder_of(run, self._base), _PrimeFiles(run, self._rule(), self._redaction)
            while not self._closed.wait(0 if written is None else PAUSE_S):
                self._wake.wait()
                self._wake.clear()
                if self._closed.is_set():
                    return
                incomplete = {row for row, left in self._left.items() if left}
                for event, event_end in events_from(journal, end, number):
                    found.apply(event)
                    end, number = event_end, number + 1
                rows = {record.row for record in found.ledger.records} - incomplete - (written or set())
                lines = list(files.lines(found, rows))
                if written is None:
                    private.make_folders((folder / SETTINGS).parent if files.name == TRACES else folder)
                    private.write(folder / files.name, lines)
                else:
                    private.append(folder / files.name, "".join(lines).encode())
                for name, text in files.further(found, folder).items():
                    private.write(folder / name, [text])
                written = rows | (written or set())


HEARTBEAT_TIMEOUT_S = 5.0
LAST_S = 1.0
"""The end of an eval run waits so long for a request that is open."""


class Heartbeat:
    """The requests to a monitor at `url` that tell that an eval is alive: one whenever all `runs` of a row are done.

    A thread sends them, none while another one is open. Only the end of an eval run waits for an open one.
    """

    def __init__(self, url: str, runs: Iterable[RunId]) -> None:
        self._url = url
        self._left = Counter(run.row for run in runs)
        self._idle = threading.Lock()  # held while a request is open
        self._n_sent = self._n_failed = 0
        self._failure: str | None = None

    def run_done(self, run: RunId) -> None:
        """Send a request if this was the last run of its row. Returns at once."""
        self._left[run.row] -= 1
        if self._left[run.row] == 0 and self._idle.acquire(blocking=False):
            threading.Thread(target=self._send, name="osmosis-heartbeat", daemon=True).start()

    def close(self) -> None:
        """Wait for an open request, but not long, and send none from now on."""
        self._idle.acquire(timeout=LAST_S)

    @property
    def notice(self) -> str | None:
        """A line on requests that failed, None if none did. It names the host alone: the rest may be a secret."""
        if self._failure is None:
            return None
        where = urlsplit(self._url).hostname
        return f"{self._n_failed} of {plural(self._n_sent, 'heartbeat')} to {where} failed: {self._failure}"

    def _send(self) -> None:
        from http.client import HTTPException
        from urllib.request import urlopen

        self._n_sent += 1
        try:
            urlopen(self._url, timeout=HEARTBEAT_TIMEOUT_S).close()
        except (OSError, ValueError, HTTPException) as error:
            self._n_failed += 1
            self._failure = self._failure or str(error) or type(error).__name__
        finally:
            self._idle.release()


def results_name(run: StoredEvalRun) -> str:
    """Return the name of the file that has a line for each run."""
    return TRACES if run.manifest.environment.get("config") else RESULTS


class _PrimeFiles:
    """The texts of the files of an eval run. `totals` are those of the lines so far, in the file `name`."""

    def __init__(self, run: StoredEvalRun, rule: PassRule, redaction: Redaction) -> None:
        self._run = run
        self._rule = rule
        self._redaction = redaction
        self.name = results_name(run)
        self.totals = _Totals(run.manifest.subject.n, rule.reward_threshold)

    def lines(self, found: Replayed, only: Set[int] | None = None) -> Iterator[str]:
        """Yield the line of each run of the eval's model that ended, by example and run, and add it to the totals.

        With `only` these are the runs of those rows.
        """
        ended = (
            record
            for record in found.ledger.records.values()
            if not record.run.is_baseline
            and record.status in ("finished", "failed")
            and (only is None or record.run.row in only)
        )
        own, directory = {"tool_defs": self._run.manifest.environment.get("tools")}, self._run.directory
        with ExitStack() as stack:
            reader = stack.enter_context(EventReader(directory.journal))
            has_rows = something_at(directory.rows)
            rows = enumerate(stack.enter_context(open_file(directory.rows)) if has_rows else ())
            at, row = -1, Line()
            environment = self._run.manifest.environment
            for record in sorted(ended, key=lambda record: plan_order(record.run)):
                if at < record.run.row:
                    at, found_row = next((each for each in rows if each[0] == record.run.row), (record.run.row, b"{}"))
                    row = _row_facts(found_row)
                rollout, score = (found.event(kind, record, reader) for kind in ("rollout", "score"))
                line = _line(record, self._rule, rollout, score, {**own, **row})
                line = self._redaction.value(line, unchanged=_OWN)
                self.totals.add(line)
                if self.name == TRACES:
                    line = self._redaction.value(episode_of(line, rollout, row, environment))
                yield json.dumps(line, allow_nan=False) + "\n"

    def further(self, found: Replayed, folder: Path) -> dict[str, str]:
        """Return the texts of the further files in the folder, by name, on the lines so far."""
        files = {METADATA: _metadata(self._run, found, self.totals)}
        if self.name == TRACES:
            files[SETTINGS] = settings_of(self._run, folder, _address(self._run.manifest.target))
        redacted = {name: self._redaction.value(each, unchanged=frozenset({"osmosis"})) for name, each in files.items()}
        return {name: json.dumps(each, allow_nan=False) + "\n" for name, each in redacted.items()}


# -- results.jsonl ---------------------------------------------------------------------------------------


def _row_facts(line: bytes) -> Line:
    """Return the members of an environment's row, a line of JSON, that lines have too."""
    found = parsed(line.decode())
    metadata = found.get("metadata") or {}
    facts = {"example_id": found.get("example_id"), "answer": found.get("ground_truth")}
    facts |= {name: metadata.get(name) for name in ("task", "info", "data", "key")}
    return {name: value for name, value in facts.items() if value is not None}


def _line(record: RunRecord, rule: PassRule, rollout: Event, score: Event, facts: Line) -> Line:
    """Return a line. `facts` are those of the row, and of the environment for all rows."""
    given = {**facts, **_valid(rollout.get("environment", {}))}
    messages, n_prompt = rollout.get("messages", []), rollout.get("n_prompt", 0)
    metrics = _metrics(record)
    columns = given.get("columns") or {}
    if columns:  # reward functions set some
        columns = {**columns, **score.get("fields", {}).get(REWARD, {})}
    answer, info = score.get("ground_truth", given.get("answer")), given.get("info")
    error = given.get("error") or _error(record, rule)
    usage = given.get("token_usage") or _usage(record)
    return {
        **{name: value for name, value in metrics.items() if name not in _MEMBERS},
        **{name: value for name, value in columns.items() if name not in _MEMBERS},
        "example_id": given.get("example_id", record.run.row),
        "run_index": record.run.index,
        "prompt": [_message(message) for message in messages[:n_prompt]],
        "completion": [_message(message) for message in messages[n_prompt:]],
        **({"answer": answer} if answer not in (None, "") else {}),
        **({"task": given["task"]} if given.get("task") else {}),
        **({"info": info} if info else {}),
        "reward": rule.reward(record) or 0.0,
        "error": error,
        "timing": _timing(record, rollout, given.get("timing")),
        "is_completed": given.get("is_completed", True),
        "is_truncated": given.get("is_truncated", record.finish_reason == "length" or record.bound is not None),
        "stop_condition": given.get("stop_condition", "has_error" if record.boundary else record.finish_reason),
        "metrics": metrics,
        "tool_defs": given.get("tool_defs") or [],
        **({"token_usage": usage} if usage is not None else {}),
        **(
            {"error_chain": error["error_chain_repr"], "long_error_chain": error["error_chain_str"]}
            if error is not None
            else {}
        ),
    }


class _ErrorFields(TypedDict):
    error: str
    error_chain_repr: str
    error_chain_str: str


_OF_ENVIRONMENT: Mapping[str, Any] = {
    "error": _ErrorFields | None,
    "timing": Mapping[str, Any] | None,
    "columns": Mapping[str, Any] | None,
    "token_usage": Mapping[str, float] | None,
    "tool_defs": Sequence[Any] | None,
}


def _valid(environment: Mapping[str, Any]) -> Line:
    """Return the facts of an environment's rollout without those whose form is none that we write."""

    def is_valid(name: str, value: Any) -> bool:
        try:
            decode(value, _OF_ENVIRONMENT.get(name, Any))
        except ShapeFault:
            return False
        return True

    return {name: value for name, value in environment.items() if is_valid(name, value)}


def _message(message: Any) -> Any:
    """Return a message with its tool calls as JSON texts, as verifiers writes them."""
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not calls or not isinstance(calls, list):
        return message
    return {**message, "content": message.get("content") or "", "tool_calls": [_tool_call(call) for call in calls]}


def _tool_call(call: Any) -> str:
    """Return a tool call as a JSON text.

    >>> _tool_call({"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}})
    '{"id": "c1", "name": "add", "arguments": "{}"}'
    """
    if isinstance(call, str):
        return call
    function = call.get("function") if isinstance(call, Mapping) else None
    if isinstance(function, Mapping):
        call = {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
    return json.dumps(call)


def _metrics(record: RunRecord) -> dict[str, float]:
    """Return the metrics of the environment or the Grader by their names, and further scores by their functions."""
    found: dict[str, float] = {}
    for source, metrics in record.metrics.items():
        prefix = "" if source == REWARD else f"{source}."
        found |= {f"{prefix}{name}": value for name, value in metrics.items()}
    scores = record.scores if record.status == "finished" else {}
    return {**found, **{name: value for name, value in scores.items() if name != REWARD}}


def _error(record: RunRecord, rule: PassRule) -> dict[str, str] | None:
    """Return why a run has no reward, as verifiers describes errors; None if it has one."""
    if record.boundary is not None:
        return _described(record.error or "", record.boundary)
    broken = rule.broken(record)
    if not broken:
        return None
    error = reward_error(record, broken[0])
    return _described(error.message, error.boundary)


def _described(text: str, boundary: str) -> dict[str, str]:
    """Return an error by its text, which begins with its type if it was an exception.

    >>> _described("ValueError: no number", "agent")["error"], _described("took 9 s", "timeout")["error"]
    ('ValueError', 'timeout')
    """
    named = _ERROR_NAME.match(text)
    name = named["name"] if named and (named["name"].endswith(("Error", "Exception")) or ":" in text) else boundary
    name = name if name.endswith(("Error", "Exception", "Exit")) else boundary
    return {"error": name, "error_chain_repr": text or name, "error_chain_str": name}


def _usage(record: RunRecord) -> dict[str, float] | None:
    if record.usage is None:
        return None
    return {name: float(record.usage.get(name, 0)) for name in ("input_tokens", "output_tokens")}


def _timing(record: RunRecord, rollout: Event, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the times of a run: in milliseconds as 0.1.13 has them, and as spans in seconds like 0.1.14."""
    rolled_s, scored_s = record.duration_ms / 1000, record.scoring_ms / 1000
    ended = datetime.fromisoformat(rollout["at"]).timestamp() if "at" in rollout else rolled_s
    begun = max(0.0, ended - rolled_s)
    generation, scoring = _span(begun, rolled_s), _span(begun + rolled_s, scored_s)
    measured = {
        "generation_ms": record.duration_ms,
        "scoring_ms": record.scoring_ms,
        "total_ms": record.duration_ms + record.scoring_ms,
        "start_time": begun,
        "setup": _span(begun, 0.0),
        "generation": generation,
        "scoring": scoring,
        "model": {"spans": [], "duration": 0.0},
        "env": {"spans": [], "duration": 0.0},
        "total": rolled_s + scored_s,
    }
    of_scoring = ("scoring", "scoring_ms", "total", "total_ms", "overhead")  # which had not begun
    timing = {**measured, **{name: value for name, value in (known or {}).items() if name not in of_scoring}}
    phases = [timing[name] for name in ("setup", "model", "env", "scoring")]
    taken = [phase.get("duration") for phase in phases if isinstance(phase, Mapping)]
    return {**timing, "overhead": timing["total"] - sum(each for each in taken if isinstance(each, int | float))}


def _span(start: float, duration: float) -> dict[str, float]:
    return {"start": start, "end": start + duration, "duration": duration}


# -- metadata.json ---------------------------------------------------------------------------------------


def _mean(numbers: Sequence[float]) -> float:
    """Return the mean of numbers, 0.0 without any. They are summed exactly, because the sum may fit no float."""
    return float(sum(map(Fraction, numbers)) / len(numbers)) if numbers else 0.0


@dataclass
class _Totals:
    """The means over lines, and passes by example. `runs` are those of a complete example."""

    runs: int
    threshold: float
    rewards: list[float] = field(default_factory=list)
    n_errors: int = 0
    metrics: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    usage: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    passes: dict[Any, list[bool]] = field(default_factory=lambda: defaultdict(list))
    tools: dict[str, Sequence[Any]] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        self.rewards.append(line["reward"])
        self.n_errors += line["error"] is not None
        self.passes[json.dumps(line["example_id"])].append(line["reward"] >= self.threshold)
        self.tools.setdefault(json.dumps(line["tool_defs"]), line["tool_defs"])
        for all_values, values in ((self.metrics, line["metrics"]), (self.usage, line.get("token_usage", {}))):
            for name, value in values.items():
                if isinstance(value, int | float):
                    all_values[name].append(value)

    def pass_rates(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return pass@k and pass^k for powers of two, over complete examples; none for one run an example."""
        at, hat = dict[str, float](), dict[str, float]()
        complete = [sum(passes) for passes in self.passes.values() if len(passes) == self.runs]
        n, k = self.runs, 1
        while n > 1 and complete and k <= n:
            ways = math.comb(n, k) * len(complete)
            at[str(k)] = 1.0 - sum(math.comb(n - c, k) for c in complete) / ways
            hat[str(k)] = sum(math.comb(c, k) for c in complete) / ways
            k *= 2
        return at, hat


def _metadata(run: StoredEvalRun, found: Replayed, totals: _Totals) -> dict[str, Any]:
    manifest, environment = run.manifest, run.manifest.environment
    pass_at, pass_all = totals.pass_rates()
    took_s = sum(found.session_ms) / 1000
    tools = list(totals.tools.values())
    sampling = {key: value for key, value in manifest.subject.extra.get("sampling", {}).items() if value is not None}
    usage = {name: _mean(values) for name, values in totals.usage.items()}
    return {
        "env_id": env_id_of(run),
        "env_args": environment.get("env_args", {}),
        "model": manifest.subject.model,
        "base_url": _address(manifest.target),
        "num_examples": len(totals.passes),
        "rollouts_per_example": manifest.subject.n,
        "sampling_args": {"max_tokens": None, **sampling},
        "time": took_s,
        "time_ms": took_s * 1000,
        "avg_reward": _mean(totals.rewards),
        "avg_metrics": {name: _mean(values) for name, values in totals.metrics.items()},
        "avg_error": totals.n_errors / len(totals.rewards) if totals.rewards else 0.0,
        "pass_at_k": pass_at,
        "pass_all_k": pass_all,
        "pass_threshold": totals.threshold,
        "usage": usage or None,
        "version_info": {
            "vf_version": environment.get("framework") or "",
            "vf_commit": None,
            "env_version": environment.get("version"),
            "env_commit": manifest.git["git_commit"] if manifest.git is not None else None,
        },
        "state_columns": list(environment.get("state_columns", ())),
        "tools": (tools[0] or None) if len(tools) == 1 else None,
        "osmosis": {"schema_version": SCHEMA_VERSION, "run": run.directory.name},
    }


def _address(target: Mapping[str, Any]) -> str:
    if target.get("replicas"):
        return ",".join(map(_address, target["replicas"]))
    service = SERVICES.get(target.get("provider", ""))
    return str(target.get("base_url") or (service.base_url if service is not None else "") or "")


PUSH_TIMEOUT_S = 600.0
MOST_NAME_CHARS = 96
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+|\.\.+|--+")


def default_name(env_id: str, model: str, n_examples: int, runs_per_example: int) -> str:
    """Return the name of the dataset, made as `prime eval` makes it, of the characters that the Hub takes.

    >>> default_name("math-python", "openai/gpt-5.4-mini", 5, 3)
    'math-python_openai_gpt-5.4-mini_n5_r3'
    """
    name = f"{env_id.rpartition('/')[2]}_{model.replace('/', '_')}"
    size = f"_n{n_examples}_r{runs_per_example}"
    return f"{_UNFIT.sub('-', name)[: MOST_NAME_CHARS - len(size)].strip('-.')}{size}"


def push_prime_files(folder: Path, name: str | None) -> str:
    """Push the files in a folder to the dataset `name`, and return in a line what became of it."""
    metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    name = name or default_name(
        metadata["env_id"], metadata["model"], metadata["num_examples"], metadata["rollouts_per_example"]
    )
    program = [sys.executable, "-P", "-c", f"from {__name__} import push_as_process; push_as_process()"]
    try:
        done = subprocess.run(
            [*program, str(folder), name],
            env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PUSH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _not_pushed(name, f"it took longer than {PUSH_TIMEOUT_S:g} s")
    except OSError as error:
        return _not_pushed(name, str(error))
    said = (done.stderr if done.returncode else done.stdout).splitlines()[-1:]
    if done.returncode or not said:
        return _not_pushed(name, said[0] if said else f"its process ended with {done.returncode}")
    return f"pushed to {said[0]}"


def _not_pushed(name: str, why: str) -> str:
    return f"not pushed to the Hugging Face Hub ({name}): {why}"


CARD = f"""---
configs:
- config_name: default
  data_files: %(results)s
---

Results of an evaluation, in the format of `prime eval`: a line for each rollout in `%(results)s`, settings and averages
in `{METADATA}`. Written by pytest-osmosis.
"""


def push_files(folder: Path, name: str) -> str:
    """Push the files to a dataset, which is made, private, if there is none. Return its address."""
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(library_name="pytest-osmosis")
    repo = api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
    names = [each for each in (TRACES, RESULTS, METADATA, SETTINGS) if something_at(folder / each)]
    files = [CommitOperationAdd(each, str(folder / each)) for each in names]
    if not api.file_exists(repo.repo_id, "README.md", repo_type="dataset"):
        files.append(
            CommitOperationAdd("README.md", (CARD % {"results": names[0]}).encode())
        )  # without it both files would be read as rows
    api.create_commit(repo.repo_id, files, commit_message=f"Results of {folder.name}", repo_type="dataset")
    return repo.url


def push_as_process() -> None:
    """Push what the arguments name, and print the URL of the dataset, or exit with the error in a line.

    It runs in a process of its own, so that neither the library nor a hang of the network touches pytest. The token is
    the one that the library finds: HF_TOKEN, or a login.
    """
    warnings.simplefilter("ignore")
    folder, name = sys.argv[1:]
    try:
        sys.stdout.write(f"{push_files(Path(folder), name)}\n")
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}".partition("\n")[0])
