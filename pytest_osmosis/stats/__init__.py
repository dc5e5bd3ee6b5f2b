"""Statistics of an eval run's scores: plain numbers in, plain numbers out.

Every formula names its source and its undefined case. If a value is undefined, a function raises `ValueError`, or its
docstring says that it returns None. Scores are finite floats. Nothing here knows files or thresholds.
"""

from pytest_osmosis.stats.comparison import (
    Paired,
    PairedTest,
    Unpaired,
    compare,
    compare_unpaired,
    fisher,
    holm,
    mcnemar,
    paired_test,
    sign_flip,
)
from pytest_osmosis.stats.intervals import ALPHA, POWER, Interval, chance_below, gaffke, normal_quantile, score_range
from pytest_osmosis.stats.summary import (
    PERCENTILES,
    Clusters,
    RunScore,
    Summary,
    clusters,
    effective_n,
    ks_for,
    mean,
    pass_at_k,
    pass_hat_k,
    percentile,
    sample_variance,
    std,
    summarize,
)

__all__ = [
    "ALPHA", "PERCENTILES", "POWER", "Clusters", "Interval", "Paired", "PairedTest", "RunScore", "Summary", "Unpaired",
    "chance_below", "clusters", "compare", "compare_unpaired", "effective_n", "fisher", "gaffke", "holm", "ks_for",
    "mcnemar", "mean", "normal_quantile", "paired_test", "pass_at_k", "pass_hat_k", "percentile", "sample_variance",
    "score_range", "sign_flip", "std", "summarize",
]  # fmt: skip
