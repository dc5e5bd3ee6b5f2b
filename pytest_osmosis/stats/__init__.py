"""Plain numbers in, plain numbers out: what an eval run's scores add up to, and how sure that is.

Every formula names its source and its undefined case; where a value is undefined a function raises `ValueError` or
says that it gives None. Scores are finite floats. Nothing here knows files or thresholds.
"""

from pytest_osmosis.stats.intervals import Interval, student_t, wilson
from pytest_osmosis.stats.moments import mean, median, sample_variance, std
from pytest_osmosis.stats.paired import Paired, bonett_price, compare, holm, mcnemar, sign_flip
from pytest_osmosis.stats.passes import ks_for, pass_at_k, pass_hat_k
from pytest_osmosis.stats.summary import Attempt, Summary, summarize

__all__ = [
    "Attempt",
    "Interval",
    "Paired",
    "Summary",
    "bonett_price",
    "compare",
    "holm",
    "ks_for",
    "mcnemar",
    "mean",
    "median",
    "pass_at_k",
    "pass_hat_k",
    "sample_variance",
    "sign_flip",
    "std",
    "student_t",
    "summarize",
    "wilson",
]
