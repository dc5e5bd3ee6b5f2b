"""The inputs of rollouts: all on which a stored rollout depends. An eval run only goes on with the same ones.

The manifest holds them, apart from two: digests of the rows and of the agent's code stand in the journal. Values of
variables are compared by digests, which are salted for each run, and are never shown. How fast an eval runs, how it
scores and what it expects may change, and so may what rows hold besides prompt and metadata: stored rollouts are then
scored again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_osmosis.config.environment_module import name_of
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.errors import CodeError
from pytest_osmosis.evals.request_settings import request_sampling
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import FileFault, read_text
from pytest_osmosis.files.shapes import members, table, text
from pytest_osmosis.files.strict_json import parsed
from pytest_osmosis.host.rollout_code import RolloutCode
from pytest_osmosis.models.headers import secret_headers
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.stored_progress import StoredProgress
from pytest_osmosis.record.stored_rollouts import StoredRollouts
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import shortened

if TYPE_CHECKING:
    from pytest_osmosis.evals.prepared import Prepared

BY_NAME = frozenset({"sampling", "limits.rollout", "env", "model.headers"})
"""Tables whose keys are names that users chose."""
HIDDEN = frozenset({"env", "model.headers"})
"""Tables with digests in place of values."""
SECRET = "secret"
"""Stands for a value that may change between sessions, because it only lets us in."""
MOST_ROWS_SHOWN = 3
MOST_ROWS_LISTED = 5
MOST_FILES_SHOWN = 3
MOST_DIFF_LINES = 40
MOST_DIFF_COLUMNS = 200
MOST_VALUE_CHARS = 120
MOST_SOURCE_BYTES = 1 << 26
SOURCES = members({"digests": table(text), "sources": table(text)})
"""The shape of the kept code."""


class ChangedInput(NamedTuple):
    """An input of rollouts that changed: its name, what it was and is in words, and lines that show the difference.

    `then` is "" if `now` says it all.
    """

    name: str
    then: str
    now: str
    diff: Sequence[str] = ()

    @property
    def lines(self) -> list[str]:
        change = f"{self.then} -> {self.now}" if self.then else self.now
        return [f"{self.name}: {change}", *(f"  {line}" for line in self.diff)]


# -- what rollouts depend on -----------------------------------------------------------------------------


def rollout_inputs(prepared: Prepared, salt: str) -> dict[str, dict[str, Any]]:
    """Return the inputs by table and key, as JSON, without secrets. `salt` is that of the run's digests."""
    config, other = prepared.config, prepared.baseline_model
    sampling = request_sampling(config)
    if prepared.target.seed_key is not None and config.sampling.seed is not None:
        sampling["seed"] = config.sampling.seed
    inputs: dict[str, dict[str, Any]] = {
        "experiment": {
            "model_path": config.experiment.model_path,
            "rollout": config.experiment.rollout,
            "entrypoint": config.experiment.entrypoint,
            "commit": None if prepared.commit is None else prepared.commit.sha,
        },
        "model": _address(prepared.target),
        "model.headers": _header_digests(prepared.target.headers, salt),
        "sampling": sampling,
        "agent": {
            "agent": config.agent.agent,
            "endpoint": config.agent.endpoint,
            "max_turns": config.agent.max_turns,
            "mcp": _inside(config.agent.mcp, prepared),
            "prompt": prepared.dataset.system_prompt,
        },
        "environment": _environment(prepared),
        "evaluation": {"agent_workflow_timeout_s": config.evaluation.agent_workflow_timeout_s},
        "limits.rollout": dict(config.limits.rollout),
        "cassette": {"replay": prepared.is_replay},
        "env": {name: _digest(name, value, prepared, salt) for name, value in config.env.items()},
        "baseline": {
            "model_path": None if other is None else other.name,
            **({"base_url": None} if other is None else _of_baseline(other.target)),
        },
    }
    redacted: dict[str, dict[str, Any]] = json.loads(json.dumps(prepared.redaction.value(inputs), default=str))
    return redacted


def _environment(prepared: Prepared) -> dict[str, Any]:
    """Return what a rollout of an environment depends on. Its rows are compared one by one."""
    facts, table = prepared.environment, prepared.config.environment
    if facts is None:
        return {"env_id": None}
    return {
        "env_id": name_of(facts.env_id),
        "version": facts.version,
        "code": facts.code,
        "verifiers": facts.framework,
        "env_args": dict(table.env_args),
        "extra_env_kwargs": dict(table.extra_env_kwargs),
    }


def _address(target: ModelTarget) -> dict[str, Any]:
    """Return what tells a model from others. An endpoint may move, or lose one of its replicas, and stay the same."""
    api = {} if target.api == "chat_completions" else {"api": target.api}
    return {"provider": target.provider, "model": target.model, **api, **_server(target)}


def _of_baseline(target: ModelTarget) -> dict[str, Any]:
    """Return what tells a baseline's model from others of that name: behind an id there may be another model later."""
    return {**_server(target), **({"model": target.model} if target.endpoint else {})}


def _server(target: ModelTarget) -> dict[str, Any]:
    return {"base_url": None, "endpoint": target.endpoint} if target.endpoint else {"base_url": target.base_url}


def _inside(mcp: str | None, prepared: Prepared) -> str | None:
    """Return the folder of tools relative to the workspace, which may have been moved."""
    if mcp is None:
        return None
    folder, workspace = prepared.config.workspace / mcp, prepared.config.workspace
    return folder.relative_to(workspace).as_posix() if folder.is_relative_to(workspace) else str(folder)


def _header_digests(headers: Mapping[str, str], salt: str) -> dict[str, str]:
    secret = secret_headers(headers)
    return {name: SECRET if name in secret else _salted(value, salt) for name, value in headers.items()}


def _digest(name: str, value: str, prepared: Prepared, salt: str) -> str:
    """Return the digest of a variable's value. One that is a secret of the eval may change."""
    hidden = any(name in source and source[name] == value for source in prepared.hidden)
    return SECRET if hidden else _salted(value, salt)


def _salted(value: str, salt: str) -> str:
    return blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16, key=bytes.fromhex(salt)).hexdigest()


# -- what changed since ----------------------------------------------------------------------------------


def changed_inputs(
    run: StoredEvalRun, prepared: Prepared, rollouts: StoredRollouts | StoredProgress | None = None
) -> Sequence[ChangedInput]:
    """Return the inputs of a stored eval run that are other ones now, apart from code, which is not loaded yet.

    `rollouts` are those of the run, read from its journal if they are not given. The run may grow: n may be larger
    and rows may be added. Raises `JournalError`.
    """
    rollouts = rollouts if rollouts is not None else StoredRollouts(run.directory.journal)
    return [*changed_in_manifest(run, prepared), *_changed_prompts(rollouts, prepared)]


def changed_in_manifest(run: StoredEvalRun, prepared: Prepared) -> Sequence[ChangedInput]:
    """Return the changed inputs that the manifest of a stored eval run tells, without its journal."""
    manifest = run.manifest
    now = rollout_inputs(prepared, manifest.input_salt)
    shrunk = _shrunk(manifest.selected, manifest.subject.n, prepared.part or prepared.plan)
    return [*_changed_settings(manifest.inputs, now), *shrunk]


def _changed_settings(
    then: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]
) -> Iterator[ChangedInput]:
    for name, settings in now.items():
        before = then.get(name, {})
        for key in dict.fromkeys([*before, *settings]):
            if before.get(key) != settings.get(key):
                yield _changed_setting(name, key, before, settings)


def _changed_setting(name: str, key: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> ChangedInput:
    title = f"[{name}] {toml(key) if name in BY_NAME and not key.isidentifier() else key}"
    if name not in HIDDEN:
        return ChangedInput(title, _in_words(then.get(key)), _in_words(now.get(key)))
    if key in then and key in now:
        return ChangedInput(title, "a value", "another value")
    return ChangedInput(title, *("set" if key in side else "not set" for side in (then, now)))


def _in_words(value: object) -> str:
    return "not set" if value is None else shortened(json.dumps(value, ensure_ascii=False), MOST_VALUE_CHARS)


def _shrunk(then: Plan, n_then: int, now: Plan) -> Iterator[ChangedInput]:
    if now.n < n_then:
        yield ChangedInput("[evaluation] n", f"{n_then:,}", f"{now.n:,}, and it may only grow")
    lost = _planned_rows(then) - {row for row, _ in now.rows()}
    if lost:
        yield ChangedInput("the selected rows", then.selection, f"{now.selection}, without {_rows(sorted(lost))}")


def _planned_rows(plan: Plan) -> set[int]:
    return {row for span in plan.spans for row in range(span.first, span.first + span.n_rows)}


def _changed_prompts(rollouts: StoredRollouts | StoredProgress, prepared: Prepared) -> Iterator[ChangedInput]:
    """Yield the rows whose prompt or metadata changed after their rollout, with the difference of the first ones."""
    changed: dict[int, RunId] = {}
    for run in rollouts.records:
        now = prepared.contents.get(run.row)
        if now is not None and run in rollouts and now.prompt != rollouts.contents[run.row].prompt:
            changed.setdefault(run.row, run)
    if changed:
        rows = sorted(changed)
        diff = [line for row in rows[:MOST_ROWS_SHOWN] for line in _prompt_diff(row, changed[row], rollouts, prepared)]
        further = len(rows) - MOST_ROWS_SHOWN
        diff += [f"and {plural(further, 'further row')}"] if further > 0 else []
        name = "the prompt of" if len(rows) == 1 else "the prompts of"
        yield ChangedInput(f"{name} {_rows(rows)}", "", "changed", diff)


def _prompt_diff(row: int, run: RunId, rollouts: StoredRollouts | StoredProgress, prepared: Prepared) -> list[str]:
    event = rollouts.rollout(run)
    then = _lines_of(event["messages"][: event["n_prompt"]])
    now = _lines_of(prepared.redaction.value(prepared.dataset.row(row).messages))
    if then == now:
        return [f"row {row}: its prompt is the same, its metadata is not"]
    return _diff(then, now, f"row {row}, as rolled out", f"row {row}, now")


def _lines_of(messages: Iterable[Any]) -> list[str]:
    lines: list[str] = []
    for message in messages:
        role, content = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else ("", message)
        said = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
        lines += f"{role}: {said}".splitlines()
    return lines


def _rows(rows: Sequence[int]) -> str:
    return f"{'row' if len(rows) == 1 else 'rows'} {listed(rows, MOST_ROWS_LISTED)}"


def _diff(then: Sequence[str], now: Sequence[str], name_then: str, name_now: str) -> list[str]:
    """Return a unified diff of bounded size."""
    lines = [shortened(line, MOST_DIFF_COLUMNS) for line in unified_diff(then, now, name_then, name_now, lineterm="")]
    more = len(lines) - MOST_DIFF_LINES
    return [*lines[:MOST_DIFF_LINES], *([f"({plural(more, 'further line')})"] if more > 0 else [])]


# -- the code of rollouts --------------------------------------------------------------------------------


def keep_code(directory: RunDirectory, prepared: Prepared, code: RolloutCode) -> None:
    """Keep the code of rollouts in the run directory, if there is any, so that a later change of it can be shown."""
    if not code.digests:
        return
    kept = {"digests": code.digests, "sources": prepared.redaction.value(code.sources)}
    with contextlib.suppress(OSError):  # a full disk; the digests in the journal still tell that code changed
        private.write(directory.rollout_code, [json.dumps(kept, indent=2), "\n"])


def kept_code(directory: RunDirectory) -> RolloutCode:
    """Return the kept code; none if the file is missing or damaged, as it only serves to show differences."""
    try:
        data = parsed(read_text(directory.rollout_code, most_bytes=MOST_SOURCE_BYTES))
        SOURCES(data)
    except (FileFault, ValueError):
        return RolloutCode()
    return RolloutCode(data["digests"], data["sources"])


def check_same_code(directory: RunDirectory, then: Mapping[str, str], code: RolloutCode) -> None:
    """Raise `CodeError` if the code of rollouts is not the stored run's. `then` are digests from its journal."""
    changes = changed_code(then, kept_code(directory).sources, code)
    if changes:
        raise CodeError(f"run {directory.name}: {refusal(changes)}")


def changed_code(then: Mapping[str, str], sources_then: Mapping[str, str], now: RolloutCode) -> Sequence[ChangedInput]:
    """Return the files of rollout code that changed, with the differences of the first ones."""
    names = [name for name in sorted({*then, *now.digests}) if then.get(name) != now.digests.get(name)]
    changes = []
    for shown, name in enumerate(names):
        both = name in then and name in now.digests
        words = "changed" if both else "is not used any more" if name in then else "was not used"
        diff = _code_diff(name, sources_then, now.sources) if both and shown < MOST_FILES_SHOWN else []
        changes.append(ChangedInput(name, "", words, diff))
    return changes


def _code_diff(name: str, then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    if name not in then:
        return ["(its former text was not kept)"]
    lines = _diff(then[name].splitlines(), now.get(name, "").splitlines(), f"{name}, as rolled out", f"{name}, now")
    return lines or ["(the difference is hidden: it is in a secret, or in line ends)"]


# -- messages --------------------------------------------------------------------------------------------


def refusal(changes: Sequence[ChangedInput]) -> str:
    """Return why an eval run with other inputs does not go on, and how to go on."""
    it = "this" if len(changes) == 1 else "these"
    return "\n".join(
        [
            f"cannot go on, because its rollouts were made with other inputs; {it} changed:",
            *(f"  {line}".rstrip() for change in changes for line in change.lines),
            "undo that, or begin a new run: under another name, or with --osmosis-fresh, which keeps the stored one",
        ]
    )
