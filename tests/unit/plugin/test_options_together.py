"""Options that exclude each other, and options that need another one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytest_osmosis.plugin.command.session_options import read

LEAVE = "leave out one of them"
ANEW = f": one begins anew, the other resumes; {LEAVE}"
GOES_ON = f": it names the rollouts to resume; {LEAVE}"
WHOLE = f": a baseline is a whole eval; {LEAVE}"
MERGED = ": a baseline is a whole eval; make it of the merged results: pytest-osmosis merge FILES -o BASELINE"
EXCLUDED = {
    "smoke shard=1/2": f": a smoke test has few rows; {LEAVE}",
    "stop-when-decided shard=1/2": f": a shard does not know the runs of the others; {LEAVE}",
    "update-baseline shard=1/2": MERGED,
    "update-baseline smoke": WHOLE,
    "update-baseline stop-when-decided": WHOLE,
    "update-baseline replay": f": a baseline is measured, not repeated from recorded answers; {LEAVE}",
    "shard=1/2 source=model": ": tests over rollouts have no shards; run these tests in a job of their own",
    "resume from=latest": f", which rolls nothing out; {LEAVE}",
    "run=x from=latest": f", which rolls nothing out; {LEAVE}",
    "resume-from=x resume": GOES_ON,
    "resume-from=x from=latest": GOES_ON,
    "resume-from=x smoke": GOES_ON,
    "resume-from=x shard=1/2": GOES_ON,
}
NEEDED = {
    "rescore": "--osmosis-from: it scores stored rollouts",
    "smoke-rows=2": "--osmosis-smoke: it sets the rows of a smoke test",
    "retry-failed": "--osmosis-resume or --osmosis-run=NAME: it repeats runs that are stored",
    "fresh": "--osmosis-run=NAME, the run to begin anew",
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

    assert told == [f"--osmosis-{first.partition('=')[0]}: contradicts --osmosis-{second}{EXCLUDED[pair]}"]


def test_a_run_that_begins_anew_neither_resumes_nor_repeats(pytester: pytest.Pytester) -> None:
    told = problems(configured(pytester, "run=x", "fresh", "resume", "retry-failed", "resume-from=y"), {})

    assert told == [
        f"--osmosis-fresh: contradicts --osmosis-resume{ANEW}",
        f"--osmosis-fresh: contradicts --osmosis-retry-failed{ANEW}",
        f"--osmosis-resume-from: contradicts --osmosis-resume{GOES_ON}",
        f"--osmosis-resume-from: contradicts --osmosis-fresh{GOES_ON}",
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
        f"PYTEST_OSMOSIS_SMOKE: contradicts PYTEST_OSMOSIS_SHARD=1/2{EXCLUDED['smoke shard=1/2']}",
        f"--osmosis-resume-from: contradicts PYTEST_OSMOSIS_SMOKE{GOES_ON}",
        f"--osmosis-resume-from: contradicts PYTEST_OSMOSIS_SHARD=1/2{GOES_ON}",
    ]
    assert (off.smoke, off.resume) == (None, None)
