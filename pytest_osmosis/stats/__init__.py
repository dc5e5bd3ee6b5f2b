"""Statistics of an eval run's scores: plain numbers in, plain numbers out.

Every formula names its source and its undefined case. If a value is undefined, a function raises `ValueError`, or its
docstring says that it returns None. Scores are finite floats. Nothing here knows files or thresholds.
"""

from pytest_osmosis.stats.agreement import Agreement, Figure, RatedRow, VoteAgreement, agreement, vote_agreement
from pytest_osmosis.stats.clusters import Clusters, clusters, effective_n
from pytest_osmosis.stats.distributions import normal_quantile
from pytest_osmosis.stats.intervals import Interval, gaffke, score_range
from pytest_osmosis.stats.moments import mean, percentile, sample_variance, std
from pytest_osmosis.stats.paired import Paired, PairedTest, compare, holm, mcnemar, paired_test, sign_flip
from pytest_osmosis.stats.passes import ks_for, pass_at_k, pass_hat_k
from pytest_osmosis.stats.power import ALPHA, POWER, chance_below
from pytest_osmosis.stats.summary import PERCENTILES, RunScore, Summary, summarize
from pytest_osmosis.stats.unpaired import Unpaired, compare_unpaired, fisher

__all__ = [
    "ALPHA", "PERCENTILES", "POWER", "Agreement", "Clusters", "Figure", "Interval", "Paired", "PairedTest",
    "RatedRow", "RunScore", "Summary", "Unpaired", "VoteAgreement", "agreement", "chance_below", "clusters",
    "compare", "compare_unpaired", "effective_n", "fisher", "gaffke", "holm", "ks_for", "mcnemar", "mean",
    "normal_quantile", "paired_test", "pass_at_k", "pass_hat_k", "percentile", "sample_variance", "score_range",
    "sign_flip", "std", "summarize", "vote_agreement",
]  # fmt: skip
