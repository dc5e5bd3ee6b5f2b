"""Statistics of an eval run for its charts: those of results.json, with pass@k and pass^k as curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_osmosis.results.results import Results
from pytest_osmosis.stats import Summary
from pytest_osmosis.viewer.shapes import FunctionShape, PassCurve


def functions_of(document: Mapping[str, Any], results: Results) -> Iterator[FunctionShape]:
    """Yield the published statistics of each function, of the eval's own model and then of its baseline's."""
    rule = results.pass_rule
    for model, summary in enumerate(document.get("model_summaries", [document["summary"]])):
        published = summary["eval_fns"]
        yield from (
            FunctionShape(
                name=name,
                model=model,
                threshold=rule.threshold(name),
                decides=name in rule.deciding,
                statistics=published[name],
            )
            for name in rule.scorers
            if name in published
        )


def curves_of(results: Results) -> Iterator[PassCurve]:
    """Yield the curves of runs that passed, and then those of each function, for each model.

    There are none for one run a row, and for a part of the plan, whose rates would mislead.
    """
    if results.is_fragment:
        return
    models = [(results.overall, results.by_function)]
    if results.baseline is not None:
        models.append((results.baseline.overall, results.baseline.by_function))
    for model, (overall, by_function) in enumerate(models):
        for function, summary in {"": overall, **by_function}.items():
            if summary.pass_at:
                yield _curve(function, model, summary)


def _curve(function: str, model: int, summary: Summary) -> PassCurve:
    """Return a curve. pass^1 is pass@1, so it is not among the statistics."""
    hat = {**({1: summary.pass_at[1]} if 1 in summary.pass_at else {}), **summary.pass_hat}
    return PassCurve(
        function=function,
        model=model,
        k=list(summary.pass_at),
        pass_at_k=list(summary.pass_at.values()),
        pass_hat_k=[hat.get(k) for k in summary.pass_at],
    )
