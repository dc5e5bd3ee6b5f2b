"""The finding of a comparison of two eval runs in words, and all that limits it."""

from __future__ import annotations

from pytest_osmosis import stats
from pytest_osmosis.report.changed_rows import better_and_worse
from pytest_osmosis.report.statistics import interval_text
from pytest_osmosis.results.compared_runs import ComparedRuns
from pytest_osmosis.text.numbers import count, difference, p_value, plural
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.gates import DROP


def meaning_text(compared: ComparedRuns) -> str:
    """Return the meaning of the difference in some words."""
    match compared.meaning:
        case "better":
            return "B is better"
        case "worse":
            return "B is worse"
        case None:
            return "decides nothing"
    paired = compared.rows.paired
    return "may be chance" if paired is not None and paired.difference else "no difference"


def finding_text(compared: ComparedRuns) -> str:
    """Return the finding in one sentence: its meaning, the difference, its interval, p, the test, and the rows."""
    paired = compared.rows.paired
    if paired is None:
        return "Nothing can be compared: no row was measured in both."
    meaning = {"better": "B is better", "worse": "B is worse", "chance": "No more than chance"}
    begin = meaning.get(compared.meaning or "", "This decides nothing")
    over = "the one row" if paired.n_rows == 1 else f"the {count(paired.n_rows)} rows"
    test = f"95% interval {interval_text(paired.interval, difference)}, p {p_value(paired.p)}, {paired.test}"
    differs = f"differs by {difference(paired.difference)}" if paired.difference else "is the same"
    rows = better_and_worse(paired.better, paired.worse)
    return f"{begin}: over {over} that both measured, the pass rate of B {differs} ({test}); {rows}."


def fairness_texts(compared: ComparedRuns) -> list[str]:
    """Return the reasons why the difference decides nothing."""
    texts = list(compared.caveats)
    if compared.least_p is not None:
        rows = plural(compared.rows.n_rows, "row")
        texts.append(f"{rows} cannot show a difference: p is at least {compared.least_p:.2g}, whatever the rows are")
    return texts


def power_text(compared: ComparedRuns) -> str | None:
    """Return the chance to notice a small difference, None if it is large enough, not known, or of no interest."""
    paired = compared.rows.paired
    if compared.meaning != "chance" or paired is None or not paired.se:
        return None
    z, enough = stats.normal_quantile(1 - stats.ALPHA / 2), stats.normal_quantile(stats.POWER)
    chance = stats.chance_below(DROP - z * paired.se, paired.se)
    if chance >= stats.POWER:
        return None
    needed = round(paired.n_rows * ((z + enough) * paired.se / DROP) ** 2 + 0.5)
    return (
        f"low power: a true difference of {DROP:g} would be noticed {chance:.0%} of the time; "
        f"{plural(needed, 'row')} would make it {stats.POWER:.0%}"
    )


def left_out_text(compared: ComparedRuns) -> str | None:
    """Return the numbers of rows that are not compared, None if all are."""
    rows = compared.rows.matched
    parts = {
        "only in A": rows.removed,
        "only in B": rows.added,
        "with other content": rows.changed,
        "not measured in both": compared.rows.n_unmeasured,
    }
    texts = [f"{count(n)} {reason}" for reason, n in parts.items() if n]
    return f"rows left out: {', '.join(texts)}" if texts else None


def end_texts(compared: ComparedRuns) -> list[str]:
    """Return how the sides ended that did not finish."""
    texts = []
    for side in (compared.a, compared.b):
        if (reason := side.document.get("stop_reason")) is not None and not side.caveats:
            ended = "failed" if side.document.get("status") == "failed" else "was stopped"
            texts.append(f"{side.letter} {ended}: {one_line(reason)}")
        if not side.has_ended:
            texts.append(f"{side.letter} did not end: only rows that it has measured so far are compared")
    return texts
