"""Generate docs/reference/prime-eval.md: the flags of `prime eval` and their equivalents, from `config.named_keys`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from docs.pages import markdown
from docs.pages.markdown import cell, code
from pytest_osmosis.config.named_keys import OF_PRIME_NOT_OFFERED, OPTIONS, PRIME_KEYS, PrimeKey

HEAD = """\
# Flags of `prime eval`

`prime eval run my-env -n 10` is `pytest --osmosis-env=my-env --osmosis-num-examples=10`, and `prime eval run FILE` is
`pytest FILE`. Two names of one [key](config.md), like `--osmosis-n` and `--osmosis-rollouts-per-example`, cannot stand
in one command. There are no
short options, because `-n`, `-x`, `-k`, `-m`, `-s` and others mean something else to pytest. Any other flag of these
tables, typed at pytest, is an error that names its equivalent. The flags are those of April 2026, of verifiers 0.1.13
and 0.1.14; newer releases of `prime` [run nothing locally](../how-to/from-verifiers.md).
[Other differences](verifiers-differences.md) have a page of their own.
"""

DEFAULTS = """\
## Defaults of environments

| | environments | [other evals](config.md) |
|---|---|---|
| rows | 5 | all, or a 10% sample of them with a TOML |
| runs of every row | 3 | 1 |
| rollouts at once | 32 | 1 |
| the model, if none is named | that of `prime eval`, if `PRIME_API_KEY` is set | none |
| lowest reward that passes | the environment's `pass_threshold`, 0.5 in most | 1.0 |

`[tool.verifiers.eval]` in the environment's own pyproject.toml can hold other defaults, `num_examples` and
`rollouts_per_example`. [All else](precedence.md) wins over it.
"""

KEYS = """\
## Keys of `[[eval]]`

A [TOML with several evals](several-evals.md) has these keys: at its top, in `[[eval]]`, in `[[ablation]]` and in
`[ablation.sweep]`. Each sets the key of ours, which can be written there too, in the table named here, under the same
name unless another is given:
"""

NOT_KEYS = (
    "- `sampling_args` sets all of `[sampling]`: `temperature`, `top_p`, `max_tokens`, `seed` and `stop`, and "
    "`extra_body` for others."
)


class Flag(NamedTuple):
    """A flag of `prime eval` with its short form.

    `setting` is the name of its `PrimeKey`; of a flag without one, `here` are the equivalents.
    """

    flag: str
    short: str = ""
    setting: str = ""
    here: str = ""
    remark: str = ""


GROUPS: dict[str, tuple[Flag, ...]] = {
    "Which environment": (
        Flag("env_id_or_path", setting="env_id", remark="one id, or the path of a TOML as an argument of pytest"),
        Flag("--env-args", "-a", "env_args", remark="JSON, or a TOML inline table"),
        Flag("--extra-env-kwargs", "-x", "extra_env_kwargs", remark="set after the environment was made, as there"),
        Flag(
            "--env-dir-path", "-p", "env_dir_path",
            remark="where environments are found that are not installed; no file is written there. "
            "`-p` is `--provider` in the code of verifiers",
        ),
    ),
    "The model": (
        Flag("--model", "-m", "model", remark="an id of the registry, or a name with its [provider](providers.md)"),
        Flag("--api-base-url", "-b", "api_base_url"),
        Flag("--api-key-var", "-k", "api_key_var", remark="the name of a variable, never the key"),
        Flag("--api-client-type", "", "api_client_type", remark="the four of the page, and `openai_responses`"),
        Flag("--endpoints-path", "-e", "endpoints_path", remark="[the registry](endpoints.md)"),
        Flag("--header", "", "header", remark="repeatable; in the variable, one per line"),
        Flag("--header-from-state", "", "header_from_state", remark="repeatable; in the variable, one per line"),
        Flag(
            "--provider", "-p",
            here="`--osmosis-model`, `[experiment] model_path`",
            remark="a prefix of the name: [providers](providers.md). There is no implicit provider but the one that "
            "`PRIME_API_KEY` asks for, and the header names it",
        ),
    ),
    "Sampling": (
        Flag("--max-tokens", "-t", "max_tokens"),
        Flag("--temperature", "-T", "temperature"),
        Flag(
            "--sampling-args", "-S",
            here="`--osmosis-sampling-args`, `[sampling]`",
            remark="a key that another option sets too is an error, not overridden",
        ),
    ),
    "Rows and runs": (
        Flag("--num-examples", "-n", "num_examples", remark="-1 is all rows; 0 is an error"),
        Flag("--rollouts-per-example", "-r", "rollouts_per_example", remark="at least 1"),
    ),
    "At once": (
        Flag("--max-concurrent", "-c", "max_concurrent", remark="exact, and -1 is no limit; there, rows count"),
        Flag("--max-concurrent-generation", "", "max_concurrent_generation", remark="0.1.13 does not know it"),
        Flag("--max-concurrent-scoring", "", "max_concurrent_scoring", remark="0.1.13 does not know it"),
        Flag("--no-interleave-scoring", "-N", "no_interleave_scoring", remark="has no effect in 0.1.13"),
        Flag(
            "--independent-scoring", "-i", "independent_scoring",
            remark="refused by environments whose reward functions need all runs of a row",
        ),
        Flag(
            "--max-retries", "", "max_retries",
            remark="repeats rollouts, as there; `[model] max_retries` repeats single requests, 4 times by default",
        ),
        Flag(
            "--num-workers", "-w", "num_workers",
            remark='"auto" is the number given to xdist\'s `-n`, or 1: one process rolls out thousands at once',
        ),
        Flag(
            "--timeout", "", "timeout",
            remark="of one rollout; 450 s by default. `[evaluation] grader_timeout_s` is that of scoring",
        ),
    ),
    "Output": (
        Flag("--save-results", "-s", "save_results", remark="results are kept in `.osmosis/runs/` without it too"),
        Flag("--output-dir", "-o", "output_dir", remark="default: `outputs`; never a folder inside the environment"),
        Flag("--state-columns", "-C", "state_columns"),
        Flag(
            "--resume", "-R",
            here="`--osmosis-resume`, `--osmosis-run`, `--osmosis-resume-from`",
            remark="without a path: `--osmosis-resume`; with one: `--osmosis-resume-from=DIR`; `--osmosis-run=NAME` "
            "names a run, and given again resumes it",
        ),
        Flag("--save-to-hf-hub", "-H", "save_to_hf_hub", remark="with `pytest-osmosis[hub]`; no TOML and no variable"),
        Flag("--hf-hub-dataset-name", "-D", "hf_hub_dataset_name"),
        Flag("--heartbeat-url", "", "heartbeat_url"),
        Flag("--abbreviated-summary", "-A", "abbreviated_summary"),
        Flag("--verbose", "-v", here="pytest's `-v`"),
    ),
}  # fmt: skip

NOT_OFFERED = tuple(
    Flag(flag, {"--fullscreen": "-f", "--disable-tui": "-d"}.get(flag, ""), remark=why)
    for flag, why in OF_PRIME_NOT_OFFERED.items()
)
"""Flags without an equivalent, and why."""


def page() -> str:
    parts: list[Iterable[str] | str] = [HEAD]
    for title, flags in GROUPS.items():
        parts += [f"## {title}", markdown.table(("flag", "here", ""), map(_row, flags))]
    why = ((_written(flag), cell(flag.remark)) for flag in NOT_OFFERED)
    parts += ["## Not offered", markdown.table(("flag", "why"), why), DEFAULTS]
    parts += [KEYS, [*_keys(), NOT_KEYS]]
    return markdown.page(parts)


def _row(flag: Flag) -> tuple[str, ...]:
    return _written(flag), flag.here or ", ".join(_equivalents(flag.setting)), flag.remark


def _written(flag: Flag) -> str:
    return ", ".join(code(name) for name in (flag.short, flag.flag) if name)


def _equivalents(setting: str) -> Iterator[str]:
    """Yield the option of a setting, ours for the same key, and the key."""
    prime = PRIME_KEYS[setting]
    own = next((name for name, place in OPTIONS.items() if place == (prime.table, prime.key)), None)
    options = dict.fromkeys(name.replace("_", "-") for name in (prime.option, own) if name is not None)
    yield from (code(f"--osmosis-{name}") for name in options)
    yield code(f"[{prime.table}] {prime.key}")


def _keys() -> Iterator[str]:
    """Yield the keys that set those of each table."""
    for table, primes in groupby(PRIME_KEYS.values(), key=lambda prime: prime.table):
        yield f"- `[{table}]`: {', '.join(map(_key, primes))}"


def _key(prime: PrimeKey) -> str:
    return code(prime.name) if prime.name == prime.key else f"{code(prime.name)} ({code(prime.key)})"
