"""The lines that pytest's header shows for each eval: its model, data, size, limits, gates and notes.

Of several evals each gets one line; `-v` shows them whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_osmosis.config.tables import Training
from pytest_osmosis.datasets import SAMPLE
from pytest_osmosis.evals import (
    Prepared,
    RescoreSource,
    ResumeSource,
    baseline_path,
    cassette_line,
    model_text,
    rate_limit_texts,
    rollout_bounds_text,
    sampling_text,
)
from pytest_osmosis.evals.resume import spent_before
from pytest_osmosis.evals.rollout_source import NewRollouts, PartlyStored
from pytest_osmosis.plugin import options
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.report.failure_text import lost_text
from pytest_osmosis.report.overview import distinct_names
from pytest_osmosis.report.summary import last_run_line, stored_line
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, moment, plural, score
from pytest_osmosis.text.redaction import MIN_CHARS
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.gates import title_of

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession

MOST_FUNCTIONS = 6
MANY_TESTS = 20_000
"""Above this many tests, the header suggests `--osmosis-granularity=row`."""
MOST_PROMPT_CHARS = 80
MOST_NAMES = 6
ALL_ROWS = "--osmosis-limit=all for all"


def header(evals: EvalSession) -> list[str]:
    prepared = [each.prepared for each in evals.named.values()]
    if len(prepared) > 1 and evals.config.get_verbosity() <= 0:
        rollouts = plural(sum(each.collected.n_rollouts for each in prepared), "rollout")
        lines = [f"osmosis: {plural(len(prepared), 'eval')}, {rollouts} (-v shows each eval whole)"]
        sizes = []
        for each in prepared:
            size = _rows_and_runs(each.collected)
            of = "" if each.shard is None else f" of {each.shard}"
            sizes.append((each, f"smoke: {size}" if each.smoke is not None else f"{size}{of}"))
        lines += compact_lines(sizes, evals, gated=True)
    else:
        lines = [line for each in prepared for line in eval_lines(each, evals)]
    lines += [f"osmosis: not measured: {str(error).splitlines()[0]}" for error in evals.not_loaded.values()]
    lines += evals.not_listed
    if evals.naming.asks_models:
        of_tests = f"tests marked {options.EVAL_MARKER_NAME}"
        lines.append(f"osmosis: {of_tests} ask the models of their evals ({options.ASKS_MODELS})")
    return lines


def compact_lines(prepared: Sequence[tuple[Prepared, str]], evals: EvalSession, *, gated: bool) -> Iterator[str]:
    """Yield a line on each eval, with its size in words, and what concerns the secrets of all.

    `gated` evals have tests of their own; in place of others tests over their rollouts decide.
    """
    names = distinct_names([(each.config.name, shown(each.config.path)) for each, _ in prepared])
    for name, (each, size) in zip(names, prepared, strict=True):
        if each.config.training is not None:
            asked = "no model to ask" if each.lacks_model else f"{each.models.target.describe}, {size}"
            parts = ["preflight of a training config", asked]
        else:
            parts = [*_brief_parts(each, size, inline=evals.inline is not None)]
            if each.config.gates and gated:
                parts.append(f"gate {' and '.join(map(title_of, each.config.gates))}")
        if each.notes:
            parts.append(plural(len(each.notes), "note"))
        yield f"  {name}: {', '.join(parts)}"
    sampled = [name for name, (each, _) in zip(names, prepared, strict=True) if _leaves_out_rows(each)]
    if sampled:
        yield f"  note: {listed(sampled, MOST_NAMES)}: 10% of the rows by default; {ALL_ROWS}"
    for note in dict.fromkeys(note for each, _ in prepared for note in _secret_notes(each)):
        yield f"  note: {note}"


def _brief_parts(prepared: Prepared, size: str, *, inline: bool) -> Iterator[str]:
    yield model_text(prepared.config, prepared.models.target)
    if prepared.models.baseline is not None:
        yield f"baseline {prepared.models.baseline.target.describe}"
    if prepared.models.cassette is not None:
        yield cassette_line(prepared.models.cassette).partition(":")[0]
    yield size
    if isinstance(prepared.source, ResumeSource):
        yield f"resumes {prepared.source.run.directory.name}: {_taken_and_left(prepared)[1]}"
    if not inline:
        yield f"{count(prepared.config.in_flight)} in flight"
    if prepared.commit is not None:
        yield f"code of {prepared.commit.title}"


def _taken_and_left(prepared: Prepared) -> tuple[str, str]:
    """Return how many rollouts there are already, and how many are left."""
    runs = [*prepared.collected.every_run()]
    n_left = prepared.source.n_to_roll_out(runs)
    return f"{count(len(runs) - n_left)} of {plural(len(runs), 'rollout')}", f"{count(n_left)} left"


def eval_lines(prepared: Prepared, evals: EvalSession, size: str | None = None) -> Iterator[str]:
    """Yield the lines of one eval; `size` replaces "rows x runs"."""
    config = prepared.config
    if config.training is not None:
        yield from _preflight_lines(prepared, config.training)
    else:
        yield from _own_lines(prepared, evals, size)
    # without a TOML, options are the eval itself and are not repeated
    if overridden := [line for line in config.overridden if config.text is not None or "(--osmosis-" not in line]:
        yield f"  overridden: {', '.join(overridden)}"
    if config.preset:
        yield f"  preset: {', '.join(config.preset)}"
    for note in (*prepared.notes, *_secret_notes(prepared)):
        yield f"  note: {note}"


def _own_lines(prepared: Prepared, evals: EvalSession, size: str | None) -> Iterator[str]:
    config, plan = prepared.config, prepared.collected
    yield f"osmosis: {config.name} ({shown(config.path) if config.text is not None else 'without a TOML'})"
    source = prepared.source
    asks = source.asks_models and not config.agent.is_recorded
    sampling = f"; sampling: {sampling_text(config, prepared.models.target, prepared.environment)}" if asks else ""
    yield f"  model: {model_text(config, prepared.models.target)}{sampling}"
    if (prompt := prepared.dataset.system_prompt) is not None:
        yield f"  system prompt: {one_line(prompt, MOST_PROMPT_CHARS)}"
    if prepared.models.cassette is not None:
        yield f"  {cassette_line(prepared.models.cassette)}"
    yield from _rows_lines(prepared)
    yield from _commit_lines(prepared)
    if isinstance(source, RescoreSource):
        yield f"  {_rows_and_runs(plan)} = {plural(plan.n_rollouts, 'run')}"
        yield from number_of_tests(plan)
        n_missing = sum(run in source.without_rollout for run in plan.runs())
        name, n_stored = source.run.directory.name, plan.n_rollouts - n_missing
        judged = prepared.models.judge is not None
        yield f"  {stored_line(name, source.rolled_out_at, n_stored, n_missing, judged=judged)}"
    else:
        yield from _rollout_lines(prepared, evals, size)
        yield from _source_lines(prepared, source)
    if prepared.models.judge is not None:
        votes = f", {plural(config.judge.votes, 'vote')} a run" if config.judge.votes > 1 else ""
        yield f"  judge: {prepared.models.judge.target.describe}{votes}, scores as rubric"
    if (path := baseline_path(config)) is not None:
        stored, found = prepared.models.baseline_results, f"{shown(path)}, which this run will write"
        if stored is not None:
            rate = f"pass rate {score(stored.summary.pass_rate)}, {plural(stored.summary.selected, 'run')}"
            found = f"{shown(stored.path)} ({moment(stored.provenance['started_at'])}, {rate})"
        yield f"  baseline: {found}"
    if config.gates:
        more = "a test of its own" if len(config.gates) == 1 else "tests of their own"  # collected later
        yield f"  gate: {', '.join(map(title_of, config.gates))} ({more})"
        if evals.options.stop_when_decided is not None:
            runxfail = evals.config.getoption("runxfail", False)
            why = "no gate decides under --runxfail" if runxfail else prepared.needs_every_run
            early = "stops as soon as the gates are decided (not with -k, --lf or node ids)"
            yield f"  {early if why is None else f'does not stop early: {why}'}"
    if config.text is None and prepared.environment is None:
        scorers = [*config.scoring.names, *filter(None, [config.scoring.grader])]
        folder = config.agent.mcp
        agent = config.agent.agent if folder is None else f"the tools of {shown(config.workspace / folder)}"
        yield f"  agent: {agent}, scored by {', '.join(scorers)}"


def _rows_lines(prepared: Prepared) -> Iterator[str]:
    """Yield the origin of the rows: a dataset, or an environment, which scores them too."""
    facts, selection = prepared.environment, prepared.collected.selection
    if _leaves_out_rows(prepared):
        selection = f"{selection.removesuffix(')')}; {ALL_ROWS})"
    if facts is None:
        yield f"  dataset: {prepared.dataset.display}, {selection}"
        return
    versions = ", ".join(filter(None, (facts.version, facts.framework and f"verifiers {facts.framework}")))
    of_versions = f" ({versions})" if versions else ""
    yield f"  environment: {facts.env_id.partition('@')[0]}{of_versions}, rows: {selection}"
    functions = f" ({listed(facts.functions, MOST_FUNCTIONS)})" if facts.functions else ""
    together = ", all runs of a row together" if facts.grouped else ""
    others = "".join(f", {name}" for name in prepared.config.scoring.names)
    yield f"  scored by: its reward{functions}{together}{others}"


def _leaves_out_rows(prepared: Prepared) -> bool:
    """Return True if a sample is rolled out only because nothing selects rows, and the command could select all."""
    chosen = isinstance(prepared.source, RescoreSource) or prepared.smoke is not None
    return not chosen and prepared.collected.selection.startswith(SAMPLE)


def _commit_lines(prepared: Prepared) -> Iterator[str]:
    if prepared.commit is not None:
        yield f"  code of {prepared.commit.title}, not the files in the workspace"


def _preflight_lines(prepared: Prepared, training: Training) -> Iterator[str]:
    config, plan = prepared.config, prepared.collected
    yield f"osmosis: {config.name} ({shown(config.path)}), preflight of a training config"
    yield f"  base model: {training.base_model}"
    yield f"  dataset: {prepared.dataset.display}, {prepared.plan.selection}"
    yield from _commit_lines(prepared)
    if prepared.lacks_model:
        yield "  no model to ask: nothing is rolled out or graded"
    else:
        model = model_text(config, prepared.models.target)
        yield f"  model: {model}; sampling: {sampling_text(config, prepared.models.target)}"
        in_flight = count(min(config.in_flight, plan.n_rollouts))
        yield f"  slice: {_rows_and_runs(plan)}, {in_flight} in flight, scores do not decide"
        yield from _limit_lines(prepared)


def _limit_lines(prepared: Prepared) -> Iterator[str]:
    if (bounds := rollout_bounds_text(prepared.config)) is not None:
        yield f"  limit: {bounds}"
    if not prepared.replays:
        for limit in rate_limit_texts(prepared.config):
            yield f"  limit: {limit}"


def _secret_notes(prepared: Prepared) -> list[str]:
    too_short = f"has fewer than {MIN_CHARS} characters and will not be redacted"
    return [f"{name} {too_short}" for name in prepared.short_secrets]


def _rollout_lines(prepared: Prepared, evals: EvalSession, size: str | None) -> Iterator[str]:
    config, plan = prepared.config, prepared.collected
    in_flight = f"{count(config.in_flight)} in flight"
    if evals.inline is not None:
        in_flight = "1 in flight, inline: in pytest's own process, without deadlines"
    elif config.in_flight == 1 and plan.n_rollouts > 1:
        in_flight += " (raise batch_size to run more at once)"
    n_rollouts = f" = {plural(plan.n_rollouts, 'rollout')}"
    recorded = ": the rows hold the conversations, nothing is rolled out"
    whole = f"{_rows_and_runs(plan)}{recorded if config.agent.is_recorded else n_rollouts}"
    yield f"  {size or whole}, {in_flight}"
    yield from _shard_lines(prepared)
    yield from number_of_tests(plan)
    yield from _limit_lines(prepared)
    if prepared.smoke is not None:
        yield f"  smoke: first {plural(plan.n_rows, 'row')}, one run each, scores do not decide"
    if prepared.last is not None:
        yield f"  {last_run_line(prepared.last)}"
    if (other := prepared.models.baseline) is not None:
        yield f"  baseline: {other.target.describe}, on the same rows side by side; its tests never fail"


def _shard_lines(prepared: Prepared) -> Iterator[str]:
    """Yield the share of a shard, and which limits each shard has for itself."""
    if prepared.shard is None or prepared.part is None:
        return
    yield f"  {prepared.shard}: {count(prepared.part.n_rows)} of {plural(prepared.plan.n_rows, 'row')}"
    limits = prepared.config.limits
    of_all_runs = ("max_tokens", "max_cost_usd", "max_duration_s")  # used up by all runs together
    own = [key for key in of_all_runs if getattr(limits, key) is not None]
    rates = rate_limit_texts(prepared.config)
    names = [*own, *(["the limits per minute"] if rates else [])]
    if names:
        yield f"  note: each shard has {' and '.join(names)} for itself"


def _source_lines(prepared: Prepared, source: NewRollouts) -> Iterator[str]:
    """Yield the name of a run that has one, and how much of it is stored."""
    if isinstance(source, ResumeSource):
        taken, left = _taken_and_left(prepared)
        begun = moment(source.run.manifest.started_at)
        yield f"  resumes {source.run.directory.name}, begun {begun}: {taken} stored, {left}"
        yield f"  spent before: {spent_before(prepared, source)}"
        if n_lost := source.resumption.progress.ledger.most_lost:
            yield f"  note: {lost_text(n_lost)}"
        return
    if isinstance(source, PartlyStored):
        yield f"  from {source.origin}: {', '.join(_taken_and_left(prepared))}"
    if source.name is not None:
        place = ", in place of the run that has this name, which is kept under another"
        yield f"  eval run: {source.name}{place if source.archives else ''}"


def _rows_and_runs(plan: Plan) -> str:
    models = f" x {len(plan.models)} models" if plan.baseline else ""
    return f"{plural(plan.n_rows, 'row')} x {plural(plan.n, 'run')}{models}"


def number_of_tests(plan: Plan) -> Iterator[str]:
    """Yield the number of tests if they report rows, and a hint if tests of runs would be too many."""
    n_rows = plan.n_rows * len(plan.models)
    if plan.granularity == "row":
        yield f"  granularity: row, {plural(n_rows, 'test')}"
    elif plan.n_rollouts > MANY_TESTS and plan.n > 1:
        instead = f'--osmosis-granularity=row ([execution] granularity = "row") makes {count(n_rows)}'
        yield f"  note: {plural(plan.n_rollouts, 'test')} take pytest much time and memory; {instead}, one for each row"
