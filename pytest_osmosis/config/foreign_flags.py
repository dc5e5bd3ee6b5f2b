"""Flags and commands that users of `osmosis eval` and `prime eval` type, and what stands for them here.

The tables of docs/reference list them too, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.config.prime_keys import PRIME_KEYS
from pytest_osmosis.text.names import suggestion
from pytest_osmosis.text.safe import one_line

PREFIX = "--osmosis-"
OF_EVALS = frozenset(
    {
        *(name.replace("_", "-") for name in OPTIONS),
        *(key.option for key in PRIME_KEYS.values()),
        *("sampling-args", "output", "secrets-file", "retry-failed", "fresh", "resume"),
    }
)
"""Options of ours with the name of a flag there, without the prefix."""
_RENAMED: Mapping[str, str] = {
    "--module": "agent",
    "--data": "dataset",
    "--dataset-file": "dataset",
    "--api-key": "api-key-env",
    "--baseline-api-key": "baseline-api-key-env",
    "--name": "run",
    "--max-in-flight": "batch-size",
    "--max-retries": "rollout-retries",
    "--rows": "set=data.rows=3,7,10-20",
    "--rubric": "set=scoring.rubric=PATH",
    "--number": "set=judge.votes=N",
    "--score-min": "set='judge.score_range=[0, 1]'",
    "--score-max": "set='judge.score_range=[0, 1]'",
    "--baseline": "set=baseline.results=PATH",
    "--provider": "model=PROVIDER/NAME",
    # short flags that pytest and xdist do not have
    "-a": "env-args",
    "-b": "api-base-url",
    "-e": "endpoints-path",
    "-t": "max-tokens",
    "-T": "temperature",
    "-S": "sampling-args",
    "-N": "no-interleave-scoring",
    "-i": "independent-scoring",
    "-w": "num-workers",
    "-C": "state-columns",
    "-R": "resume",
    "-H": "save-to-hf-hub",
    "-D": "hf-hub-dataset-name",
    "-A": "abbreviated-summary",
}
_NO_TUNNEL = "requests go only to the model, and no server needs an address"
OF_PRIME_NOT_OFFERED: Mapping[str, str] = {
    "--fullscreen": "pytest owns the terminal; one live line shows the progress",
    "--disable-tui": "there is nothing to turn off: without a terminal, a line is printed now and then",
    "--disable-env-server": "code of environments always runs in a process of its own, never in pytest's",
    "--hosted": "evals run on your machine, and requests go only to the model",
    "--follow": "belongs to `--hosted`; `pytest-osmosis runs logs NAME --follow` follows a run in the background",
    "--timeout-minutes": "belongs to `--hosted`; `[limits] max_duration_s` bounds an eval",
    "--allow-sandbox-access": "belongs to `--hosted`",
    "--custom-secrets": "belongs to `--hosted`; `[secrets] required` and `--osmosis-secrets-file` are ours",
}
"""Flags of `prime eval` without an equivalent, and why."""
NOT_OFFERED: Mapping[str, str] = {
    **OF_PRIME_NOT_OFFERED,
    "--upload": "requests go only to the model",
    "--tunnel": _NO_TUNNEL,
    "--rollout-port": _NO_TUNNEL,
    "--listener-port": _NO_TUNNEL,
    "--advertise-url": _NO_TUNNEL,
    "--yes": "nothing asks, unless `--osmosis-confirm-above` is given; `pytest-osmosis submit` takes --yes",
    "-y": "nothing asks, unless `--osmosis-confirm-above` is given; `pytest-osmosis submit` takes --yes",
}
"""The same, with those of `osmosis eval`."""


def remark(word: str, names: Collection[str] = OF_EVALS) -> str | None:
    """Return what to type for an argument that nobody registered, None if it is no flag of an eval.

    `names` are those of our options, without the prefix.

    >>> remark("--limit=5"), remark("--osmosis-lmit=5", ["limit"]), remark("--cov")
    ('; an eval takes --osmosis-limit', ', did you mean --osmosis-limit?', None)
    """
    flag = flag_of(word)
    if flag.startswith(PREFIX):
        near = suggestion(flag.removeprefix(PREFIX), names, f"{PREFIX}{{}}")
        return near or "; pytest --help lists those of pytest-osmosis"
    if flag in NOT_OFFERED:
        return f"; not offered: {NOT_OFFERED[flag].replace('`', '')}"
    name = _RENAMED.get(flag) or flag.removeprefix("--")
    return f"; an eval takes {PREFIX}{name}" if flag in _RENAMED or name in names else None


def flag_of(word: str) -> str:
    """Return the flag in an argument, as it is spelt: `--limit=5`, `--num_examples` and `-t100` have values or not.

    >>> [flag_of(word) for word in ("--limit=5", "--num_examples", "-t100")]
    ['--limit', '--num-examples', '-t']
    """
    return word.partition("=")[0].replace("_", "-") if word.startswith("--") else word[:2]


def refusals(words: Collection[str], names: Collection[str] = OF_EVALS) -> list[str]:
    """Return an error for each argument that nobody registered; none if none is a flag of an eval.

    Values are left out, because one could be a secret.
    """
    flags = [word for word in words if word.startswith("-")]
    remarks = [remark(word, names) for word in flags]
    if not any(remarks):
        return []
    return [f"{_spelt(word)}: unrecognized argument{text or ''}" for word, text in zip(flags, remarks, strict=True)]


def _spelt(word: str) -> str:
    return one_line(word.partition("=")[0] if word.startswith("--") else word[:2])
