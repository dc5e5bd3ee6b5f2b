"""Plain numbers in, plain numbers out: what an eval run's scores add up to, and how sure that is.

Every formula names its source and its undefined case; where a value is undefined a function raises `ValueError` or
says that it gives None. Scores are finite floats. Nothing here knows files or thresholds.
"""

from pytest_osmosis.stats.clusters import Clusters, clusters, effective_n, mean_interval, share_interval
from pytest_osmosis.stats.distributions import normal_quantile
from pytest_osmosis.stats.intervals import Interval, student_t, wilson
from pytest_osmosis.stats.moments import mean, median, percentile, sample_variance, std
from pytest_osmosis.stats.paired import Paired, bonett_price, compare, holm, mcnemar, sign_flip
from pytest_osmosis.stats.passes import ks_for, pass_at_k, pass_hat_k
from pytest_osmosis.stats.power import ALPHA, POWER, chance_below, rows_for, smallest_effect
from pytest_osmosis.stats.summary import PERCENTILES, Attempt, Summary, summarize

__all__ = [
    "ALPHA",
    "PERCENTILES",
    "POWER",
    "Attempt",
    "Clusters",
    "Interval",
    "Paired",
    "Summary",
    "bonett_price",
    "chance_below",
    "clusters",
    "compare",
    "effective_n",
    "holm",
    "ks_for",
    "mcnemar",
    "mean",
    "mean_interval",
    "median",
    "normal_quantile",
    "pass_at_k",
    "pass_hat_k",
    "percentile",
    "rows_for",
    "sample_variance",
    "share_interval",
    "sign_flip",
    "smallest_effect",
    "std",
    "student_t",
    "summarize",
    "wilson",
]
