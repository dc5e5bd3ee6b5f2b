"""One stored run, or all runs of a row: outcome, scores, the answer and its ground truth, the conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_osmosis.record.run_history import RunHistory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.answers import ScoredAnswer
from pytest_osmosis.report.failure_text import score_lines
from pytest_osmosis.report.message_layout import INDENT, Shortener, message_lines, text_lines
from pytest_osmosis.report.notes import note_lines
from pytest_osmosis.report.style import StyledText, bad, bold, dim, good, joined, separated, warning
from pytest_osmosis.text.numbers import count, money, plural, seconds
from pytest_osmosis.verdicts.pass_rule import ANSWER_FAULTS, UNMEASURED, PassRule


@dataclass(frozen=True, slots=True)
class RunContext:
    """All that is known about a run apart from its events.

    `eval_run` is the name of its eval run. `costs_usd` holds the known costs. `place` is the row's line in the dataset,
    `rerun` the command that repeats the run; both are "" if they are not known.
    """

    eval_run: str
    pass_rule: PassRule
    costs_usd: Mapping[RunId, float]
    place: str = ""
    rerun: str = ""


def run_lines(history: RunHistory, context: RunContext, cut: Shortener) -> Iterator[str]:
    """Yield the lines on one run, with its whole conversation."""
    yield joined(bold(f"{context.eval_run} {history.record.run}"), ": ", became(history, context))
    yield from _facts(history, context, cut)
    yield from _answer_lines(history, history.ground_truth, cut)
    if context.place:
        yield dim(f"  dataset row: {context.place}")
    if context.rerun:
        yield dim(f"  run it again: {context.rerun}")
    yield from message_lines(history.messages, cut)
    yield from _output_lines(history, cut)
    yield from shortened_lines(cut)


def row_lines(row: int, histories: Sequence[RunHistory], context: RunContext, cut: Shortener) -> Iterator[str]:
    """Yield the lines on all runs of a row: the prompt once, if all have the same, and what each run made of it."""
    yield joined(bold(f"{context.eval_run} row{row}"), ": ", _tally(histories, context))
    if context.place:
        yield dim(f"  dataset row: {context.place}")
    if context.rerun:
        yield dim(f"  run it again: {context.rerun}")
    truths = [history.ground_truth for history in histories if history.record.status == "finished"]
    is_shared = bool(truths) and all(truth == truths[0] for truth in truths)
    if is_shared:
        yield from (f"  {line}" for line in ScoredAnswer("", True, truths[0]).lines(cut))
    prompts = [list(history.messages[: history.n_prompt]) for history in histories if history.messages]
    shared = len(prompts[0]) if prompts and all(prompt == prompts[0] for prompt in prompts) else 0
    if shared:
        yield from message_lines(prompts[0], cut)
    for history in histories:
        yield ""
        yield joined(bold(str(history.record.run)), ": ", became(history, context))
        yield from _facts(history, context, cut)
        yield from _answer_lines(history, None if is_shared else history.ground_truth, cut)
        yield from message_lines(history.messages[shared:], cut)
        yield from _output_lines(history, cut)
    yield from shortened_lines(cut)


def became(history: RunHistory, context: RunContext) -> StyledText:
    """Return in words what became of a run."""
    record, rule = history.record, rule_of(history, context)
    if record.status == "pending":
        if record.skip_reason:
            return warning(f"not finished ({record.skip_reason})")
        return warning("begun, but not finished" if record.started else "never ran")
    if record.status == "skipped":
        return dim("taken out by its grader")
    if record.status == "failed":
        paint = warning if record.boundary in UNMEASURED else bad
        return paint(f"not scored, boundary {record.boundary}")
    if rule.broken(record):
        return warning("not scored, boundary reward")
    return good("passed") if rule.passed(record) else bad("did not pass")


def rule_of(history: RunHistory, context: RunContext) -> PassRule:
    return replace(context.pass_rule, scorers=tuple(history.scorers))


def shortened_lines(cut: Shortener) -> list[str]:
    """Return a remark on the texts that were shortened."""
    if not cut.n_cut:
        return []
    are = "is" if cut.n_cut == 1 else "are"
    return ["", dim(f"{plural(cut.n_cut, 'long text')} {are} shortened; --full shows everything")]


def _tally(histories: Sequence[RunHistory], context: RunContext) -> StyledText:
    parts = []
    for whose, of_baseline in (("", False), ("the baseline: ", True)):
        own = [history for history in histories if history.record.run.is_baseline is of_baseline]
        if not own:
            continue
        passed = sum(rule_of(each, context).passed(each.record) for each in own)
        paint = good if passed == len(own) else bad if not passed else warning
        parts.append(joined(whose, paint(f"{count(passed)} of {plural(len(own), 'run')} passed")))
    return separated(", ", parts)


def _facts(history: RunHistory, context: RunContext, cut: Shortener) -> Iterator[str]:
    record, rule = history.record, rule_of(history, context)
    yield dim(f"  {_circumstances(record, context.costs_usd.get(record.run))}")
    for name, line in score_lines(record, history.scorers, rule):
        decides = name in rule.deciding and name in record.scores
        yield (good if rule.met(record, name) else bad)(f"  {line}") if decides else f"  {line}"
        if name in record.scorer_errors:
            yield from text_lines(record.scorer_errors[name].details, cut, "  " + INDENT)
    if record.error is not None:
        yield from (f"  {line}".rstrip() for line in f"error: {cut(record.error)}".split("\n"))
        yield from text_lines(history.details, cut)
    if record.bound is not None and record.bound not in (record.error or ""):
        yield f"  met {record.bound}: the model was not asked again"
    if record.status == "finished" and record.answer_fault is not None:
        yield f"  {ANSWER_FAULTS[record.answer_fault]}"
    yield from (f"  {line}" for line in note_lines(record.notes, history.scorers, cut))


def _answer_lines(history: RunHistory, ground_truth: object, cut: Shortener) -> Iterator[str]:
    """Yield the answer that was scored, unless the conversation ends with it, and what was expected."""
    if history.record.status == "finished":
        answer = ScoredAnswer.of(history.messages, history.n_prompt, ground_truth)
        yield from (f"  {line}" for line in answer.lines(cut))


def _circumstances(record: RunRecord, cost: float | None) -> str:
    usage = record.usage
    parts = [
        *([f"model {record.model}"] if record.model else []),
        f"rollout {seconds(record.duration_ms / 1000)}",
        f"scoring {seconds(record.scoring_ms / 1000)}",
        "tokens unknown"
        if usage is None
        else f"{count(usage.get('input_tokens', 0))} + {count(usage.get('output_tokens', 0))} tokens",
        *([money(cost)] if cost is not None else []),
        *([f"finish reason {record.finish_reason}"] if record.finish_reason else []),
        *([plural(record.retries, "repeated request")] if record.retries else []),
        *([f"attempt {record.attempt}"] if record.attempt > 1 else []),
    ]
    return ", ".join(parts)


def _output_lines(history: RunHistory, cut: Shortener) -> Iterator[str]:
    for kind, text in (pair for output in history.outputs for pair in output.items()):
        yield from ("", bold(f"{kind}:"), *text_lines(text, cut))
