"""Options that exclude each other, and options that need another one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytest_osmosis.plugin.session_options import read

LEAVE = "leave out one of them"
MEASURED = f"a baseline is measured, not repeated from recorded answers; {LEAVE}"
EXCLUDED = (
    *("smoke shard=1/2", "stop-when-decided shard=1/2", "shard=1/2 source=model", "resume from=latest"),
    *(f"update-baseline {other}" for other in ("shard=1/2", "smoke", "stop-when-decided", "replay")),
    *(f"resume-from=x {other}" for other in ("resume", "from=latest", "smoke", "shard=1/2")),
    "run=x from=latest",
)
NEEDED = {
    "rescore": "--osmosis-from",
    "smoke-rows=2": "--osmosis-smoke",
    "retry-failed": "--osmosis-resume or --osmosis-run",
    "fresh": "--osmosis-run",
}


def problems(config: pytest.Config, environ: Mapping[str, str]) -> list[str]:
    with pytest.raises(pytest.UsageError) as caught:
        read(config, environ)
    return list(map(str, caught.value.args))


def configured(pytester: pytest.Pytester, *words: str) -> pytest.Config:
    return pytester.parseconfig(*(f"--osmosis-{word}" for word in words))


@pytest.mark.parametrize("pair", EXCLUDED)
def test_options_that_exclude_each_other_are_told(pytester: pytest.Pytester, pair: str) -> None:
    first, second = pair.split()

    told = problems(configured(pytester, first, second), {})

    why = f": {MEASURED}" if second in ("replay", "cache") else f"; {LEAVE}"
    assert told == [f"--osmosis-{first.partition('=')[0]}: contradicts --osmosis-{second}{why}"]


def test_a_run_that_begins_anew_neither_resumes_nor_repeats(pytester: pytest.Pytester) -> None:
    told = problems(configured(pytester, "run=x", "fresh", "resume", "retry-failed", "resume-from=y"), {})

    assert told == [
        f"--osmosis-fresh: contradicts --osmosis-resume; {LEAVE}",
        f"--osmosis-fresh: contradicts --osmosis-retry-failed; {LEAVE}",
        f"--osmosis-resume-from: contradicts --osmosis-resume; {LEAVE}",
        f"--osmosis-resume-from: contradicts --osmosis-fresh; {LEAVE}",
    ]


@pytest.mark.parametrize("option", NEEDED)
def test_an_option_without_the_one_that_it_needs_is_told(pytester: pytest.Pytester, option: str) -> None:
    told = problems(configured(pytester, option), {})

    assert told == [f"--osmosis-{option.partition('=')[0]}: needs {NEEDED[option]}"]


def test_a_variable_is_told_as_it_was_set_and_excludes_nothing_if_it_is_off(pytester: pytest.Pytester) -> None:
    config = configured(pytester, "resume-from=x")

    told = problems(config, {"PYTEST_OSMOSIS_SMOKE": "1", "PYTEST_OSMOSIS_SHARD": "1/2"})
    off = read(config, {"PYTEST_OSMOSIS_SMOKE": "0", "PYTEST_OSMOSIS_RESUME": "no"})

    assert told == [
        f"PYTEST_OSMOSIS_SMOKE: contradicts PYTEST_OSMOSIS_SHARD=1/2; {LEAVE}",
        f"--osmosis-resume-from: contradicts PYTEST_OSMOSIS_SMOKE; {LEAVE}",
        f"--osmosis-resume-from: contradicts PYTEST_OSMOSIS_SHARD=1/2; {LEAVE}",
    ]
    assert (off.smoke, off.resume) == (None, None)
