"""The outcome of a test: one line that says why it did not pass, and a short block of text.

With granularity "row", the outcome is that of all runs of the row together. The test passes if all runs pass. One
failed run fails it, whatever the outcome of the others; a run that was not measured keeps it from passing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from pytest_osmosis.formats.events import ROLLOUT
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunNotes, RunRecord
from pytest_osmosis.report.message_text import short_text
from pytest_osmosis.text.chat_messages import answer_of, as_chat_messages, text_of
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import escaped, one_line, shortened
from pytest_osmosis.verdicts.pass_rule import Kind, Outcome, PassRule, Transcript, kind_of, reason_of, score_line

ANSWER_IN_A_LINE = 80
"""The most characters of an answer, and of a ground truth, in a line. A longer one lacks its middle there."""
T = TypeVar("T")
REASON_IN_A_LINE = 80
"""The most characters of a reason in a line. Of a longer one the line has the beginning."""
LAST_MESSAGES = 4
MESSAGE_CHARS = 600
DETAILS_CHARS = 16_000


class ScoredAnswer(Struct, frozen=True):
    """The answer of a rollout as its reward functions got it, and the row's ground truth.

    `text` is "" for a rollout without an answer. `is_last` is True if the answer ends the conversation. A ground truth
    of None or "" is none, and is not shown.
    """

    text: str
    is_last: bool
    ground_truth: object = None

    @classmethod
    def of(cls, found: Transcript) -> ScoredAnswer:
        """Return the answer in a conversation."""
        own = [message for message in found.messages[found.n_prompt :] if isinstance(message, Mapping)]
        text = (answer_of(own) or "").strip()
        last = own[-1] if own else {}
        return cls(text, text_of(last.get("content")).strip() == text, found.ground_truth)

    @property
    def line(self) -> str:
        """The answer and the ground truth on one short line, "" without either: `answered "14", expected "15"`."""
        parts = [f"answered {_quoted(self.text)}"] if self.text else []
        return ", ".join(parts + ([f"expected {_quoted(self.ground_truth)}"] if self._is_expected else []))

    def lines(self, shorten: Callable[[str], str], *, after_line: bool = False) -> list[str]:
        """Return the ground truth, and the answer unless the conversation ends with it, in lines of their own.

        `shorten` shortens long texts. `after_line` leaves out what `line` shows in full.
        """
        lines = []
        if self.text and not self.is_last and not (after_line and _fits(self.text, ANSWER_IN_A_LINE)):
            lines += titled("answered", self.text, shorten)
        if self._is_expected and not (after_line and _fits(_text(self.ground_truth).strip(), ANSWER_IN_A_LINE)):
            lines += titled("expected", _text(self.ground_truth), shorten)
        return lines

    @property
    def _is_expected(self) -> bool:
        return self.ground_truth is not None and bool(_text(self.ground_truth).strip())


def titled(title: str, text: str, shorten: Callable[[str], str]) -> list[str]:
    """Return a text of one or more lines under its title."""
    return f"{title}: {escaped(shorten(text.strip()))}".replace("\n", "\n    ").split("\n")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _quoted(value: Any) -> str:
    """Return a value on one line, a string in quotes, and a long one without its middle.

    >>> _quoted("14"), _quoted(15), _quoted(["a", "b"])
    ('"14"', '15', '["a", "b"]')
    >>> _quoted("First add the tens, then the units, and at last carry the one, which gives this: #### 14")
    '"First add the tens, then the units, and...carry the one, which gives this: #### 14" (88 characters)'
    """
    text, half = _text(value), ANSWER_IN_A_LINE // 2
    flat = " ".join((text if len(text) <= 2000 else f"{text[:1000]} {text[-1000:]}").split())
    is_cut = len(text) > 2000 or len(flat) > ANSWER_IN_A_LINE
    shown = one_line(f"{flat[:half].rstrip()}...{flat[-half:].lstrip()}" if is_cut else flat)
    quoted = f'"{shown}"' if isinstance(value, str) else shown
    return f"{quoted} ({plural(len(text), 'character')})" if is_cut else quoted


def reason_in_a_line(record: RunRecord, pass_rule: PassRule) -> str:
    """Return the beginning of the reason for the first score that kept a run from passing, "" without one."""
    unmet = (name for name in pass_rule.deciding if not pass_rule.met(record, name) and name in record.reasons)
    name = next(unmet, None)
    if name is None:
        return ""
    flat = " ".join(record.reasons[name].split())
    return one_line(flat if len(flat) <= REASON_IN_A_LINE else f"{flat[: REASON_IN_A_LINE - 3].rstrip()}...")


def note_lines(notes: RunNotes, scorers: Sequence[str], shorten: Callable[[str], str], *, said: str = "") -> list[str]:
    """Return reasons, metrics and fields, each source in lines of its own, without a reason that was `said` in full.

    `shorten` shortens long texts.
    """
    lines = []
    for name, reason in notes.reasons.items():
        if not (said and _fits(reason, REASON_IN_A_LINE) and one_line(reason) == said):
            lines += titled(f"reason{_of(name, scorers)}", reason, shorten)
    for source, metrics in _rollout_last(notes.metrics):
        listed = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
        lines += titled(f"metrics{_of(source, scorers)}", " ".join(listed.split()), shorten)
    for source, text in _rollout_last(notes.fields):
        fields = json.dumps(json.loads(text), ensure_ascii=False)
        lines += titled(f"{'info' if source == ROLLOUT else 'extra fields'}{_of(source, scorers)}", fields, shorten)
    return lines


def _rollout_last(notes: Mapping[str, T]) -> list[tuple[str, T]]:
    return sorted(notes.items(), key=lambda note: note[0] == ROLLOUT)


def _of(source: str, scorers: Sequence[str]) -> str:
    if source == ROLLOUT:
        return " of the rollout"
    return f" of {source}" if len(scorers) > 1 else ""


def _fits(text: str, most: int) -> bool:
    return len(text) <= most and "\n" not in text


def outcome_of(
    record: RunRecord, pass_rule: PassRule, transcript: Transcript, where: str, rerun: Callable[[RunId], str]
) -> Outcome:
    """Return the outcome of a run's test. `where` is its dataset line, `rerun` returns the command that repeats it.

    An answer is shown next to its ground truth if it was scored, and after an error of the function that should have
    scored it.
    """
    details = transcript.details
    kind = kind_of(record, pass_rule)
    reason = headline = "" if kind == "passed" else one_line(reason_of(record, pass_rule))
    text = ""
    if kind in ("failed", "error"):
        answer = ScoredAnswer.of(transcript)
        said = reason_in_a_line(record, pass_rule) if kind == "failed" else ""
        if kind == "failed" and (line := answer_line(record, pass_rule, answer)):
            reason = f"{reason}: {line}"
        several = len(pass_rule.scorers) > 1 and record.status == "finished"
        lines = score_lines(record, pass_rule.scorers, pass_rule) if several else ()
        scores = [f"  {line}" for _, line in lines if line not in headline]
        answers = answer.lines(_shortened, after_line=kind == "failed") if record.boundary is None else []
        notes = note_lines(record.notes, pass_rule.scorers, _shortened, said=said)
        raised = [escaped(shortened(details.rstrip(), DETAILS_CHARS))] if details else []
        parts = [reason, *scores, *raised, *notes, *answers, *conversation_lines(transcript.messages)]
        text = "\n".join([*parts, f"dataset row: {where}", f"run it again: {rerun(record.run)}"])
    return Outcome(
        kind,
        reason,
        text,
        tuple((title, escaped(printed)) for title, printed in transcript.output),
        (record.duration_ms + record.scoring_ms) / 1000,
    )


def answer_line(record: RunRecord, pass_rule: PassRule, answer: ScoredAnswer) -> str:
    """Return in one line the reason for the score of a scored run, and its answer next to the ground truth."""
    return "; ".join(part for part in (reason_in_a_line(record, pass_rule), answer.line) if part)


def _shortened(text: str) -> str:
    return shortened(text, MESSAGE_CHARS)


def score_lines(record: RunRecord, scorers: Sequence[str], pass_rule: PassRule) -> Iterator[tuple[str, str]]:
    """Yield the name of each function that scored the run, or failed to, with a line on it."""
    for name in scorers:
        aside = "" if name in pass_rule.deciding else " (does not decide)"
        if name in record.scores:
            yield name, score_line(record.scores[name], pass_rule.threshold(name), name) + aside
        elif name in record.scorer_errors:
            yield name, f"{name}: {one_line(record.scorer_errors[name].message)}{aside}"


def conversation_lines(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    if not messages:
        return []
    shown = as_chat_messages(messages)
    last = shown[-LAST_MESSAGES:]
    head = "conversation:" if len(last) == len(shown) else f"conversation, last {len(last)} of {len(shown)} messages:"
    return [head, *(f"  {_message(message)}" for message in last)]


def _message(message: object) -> str:
    if not isinstance(message, Mapping):
        return one_line(json.dumps(message))
    text = escaped(short_text(message, MESSAGE_CHARS)).replace("\n", "\n    ")
    return f"{one_line(str(message.get('role')))}: {text}"


def lost_text(n: int) -> str:
    """Return how many rollouts were lost at most: their end is not stored, as their process or session ended before.

    >>> lost_text(1)
    'up to 1 rollout was lost in flight, possibly billed'
    """
    return f"up to {plural(n, 'rollout')} {'was' if n == 1 else 'were'} lost in flight, possibly billed"


IN_A_LINE, IN_A_BLOCK = 3, 20
"""The most runs that are listed in the reason and in the text."""


def outcome_of_row(outcomes: Mapping[RunId, Outcome], never_ran: Collection[RunId] = ()) -> Outcome:
    """Return the outcome of a row's test from the outcomes of all its runs, of which some `never_ran`.

    It is the first of these that any run has: failed, error, skipped because it never ran, passed. It is skipped if the
    grader took out all runs.
    """
    runs = {run: outcomes[run] for run in sorted(outcomes)}
    if len(runs) == 1:
        return next(iter(runs.values()))
    kinds = {outcome.kind for outcome in runs.values()}
    counts: tuple[Kind, ...] = ("failed", "error", *(("skipped",) if never_ran else ()), "passed", "skipped")
    kind = next(each for each in counts if each in kinds)
    reason, text = "", ""
    if kind == "skipped" and 0 < len(never_ran) < len(runs):
        reason = f"{len(never_ran)} of {plural(len(runs), 'run')} never ran: {runs[min(never_ran)].reason}"
    elif kind == "skipped":
        reason = next(iter(runs.values())).reason
    elif kind != "passed":
        failures = [
            f"run{run.index}: {outcome.reason}" for run, outcome in runs.items() if outcome.kind in ("failed", "error")
        ]
        head = f"{len(failures)} of {plural(len(runs), 'run')} did not pass"
        head += f", {len(never_ran)} never ran" if never_ran else ""
        shown = next(run for run, outcome in runs.items() if outcome.kind == kind)
        listed = [f"  {line}" for line in _first(failures, IN_A_BLOCK)]
        of_run = [f"run{shown.index}:"] if len(failures) > 1 else []
        reason = one_line(f"{head}: {'; '.join(_first(failures, IN_A_LINE))}")
        text = "\n".join([head, *listed, *of_run, *runs[shown].text.split("\n")[1:]])  # its first line is listed
    sections = [(f"{title} (run{run.index})", text) for run in runs for title, text in runs[run].sections]
    return Outcome(kind, reason, text, tuple(sections), sum(outcome.duration_s for outcome in runs.values()))


def _first(lines: Sequence[str], n: int) -> list[str]:
    more = [f"and {len(lines) - n} more"] if len(lines) > n else []
    return [*lines[:n], *more]
