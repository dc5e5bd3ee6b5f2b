"""Upper and lower case in the comparison with the ground truth."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_osmosis.lab.bench import NO_INPUT, Bench
from pytest_osmosis.lab.calls import Input
from pytest_osmosis.lab.examples import FORMATS, Solved
from pytest_osmosis.lab.findings import Finding, Verdict

TOLERANCE = 1e-9
MIXED = (("Paris", "Berlin"), ("Ada Lovelace", "Alan Turing"))


def probe(bench: Bench) -> Verdict:
    """Whether case matters (a note), and whether only one side is folded (a failure)."""
    if not any(scored.outcome.kind == "score" for scored in bench.examples.tried):
        return Verdict(unmeasured=NO_INPUT)
    found = [*_one_sided(bench)]
    if not found:
        found = [finding for solved in bench.examples.solved for finding in _sensitive(bench, solved)][:1]
    return Verdict(tuple(found))


def _one_sided(bench: Bench) -> Iterator[Finding]:
    """A ground truth that its own text does not answer, but its lower- or upper-case text does."""
    extra = bench.examples.tried[0].input.extra
    for truth, other in (*MIXED, *_known(bench)):
        for form in FORMATS:
            right = bench.ask(Input(answer=form.format(truth), ground_truth=truth, extra=extra)).score
            wrong = bench.ask(Input(answer=form.format(other), ground_truth=truth, extra=extra)).score
            if right is None or wrong is None or right > wrong:
                continue
            for fold in (str.lower, str.upper):
                folded = Input(answer=form.format(fold(truth)), ground_truth=fold(truth), extra=extra)
                score = bench.ask(folded).score
                if score is not None and score > right and bench.ask(folded).score == score:
                    given = Input(answer=form.format(truth), ground_truth=truth, extra=extra)
                    seen = f"{given.shown(bench.target)} = {right!r}, but {folded.shown(bench.target)} = {score!r}"
                    fix = "fold both sides: solution.casefold() == ground_truth.casefold()"
                    yield Finding("case-one-sided", "only one side of the comparison is folded", seen, fix)
                    return


def _known(bench: Bench) -> Iterator[tuple[str, str]]:
    for solved in bench.examples.solved:
        truth = solved.right.ground_truth
        if isinstance(truth, str) and truth != truth.lower():
            yield truth, str(solved.other_truth)


def _sensitive(bench: Bench, solved: Solved) -> Iterator[Finding]:
    truth, right = solved.right.ground_truth, solved.right.text()
    if not isinstance(truth, str) or truth not in right or not truth.isalpha() or len(truth) < 2:
        return
    for folded in (truth.lower(), truth.upper()):
        scored = bench.scored(solved.right.answering(right.replace(truth, folded)))
        if scored.outcome.score is not None and folded != truth and scored.outcome.score < solved.score - TOLERANCE:
            fix = 'fold both sides with casefold(), or say that it is meant: allow=["case-sensitive"]'
            what = "the right answer in other case scores less"
            yield Finding("case-sensitive", what, scored.seen(bench.target), fix, level="note")
            return
