"""A TOML with several evals: their node ids, how a command selects them, and what they leave behind."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import Workspace, read_json

PATH = "configs/eval/many.toml"
MANY = """
model = "demo/arithmetic"
dataset = "x"
eval_fn = ["rewards:score"]
num_examples = -1
cassette.record = "all"

[[eval]]
name = "plain"

[[ablation]]
[ablation.sweep]
temperature = [0.0, 0.5]
"""


@pytest.fixture
def many(workspace: Workspace) -> Workspace:
    """A workspace with a config of three evals over two rows."""
    workspace.eval("x", rows=2)
    workspace.write(PATH, MANY)
    return workspace


def names(workspace: Workspace) -> list[str]:
    return sorted(path.name.rsplit("-", 2)[0] for path in (workspace.root / ".osmosis" / "runs").iterdir())


@pytest.mark.journey
def test_each_entry_is_an_eval_with_node_ids_a_run_and_results_of_its_own(many: Workspace) -> None:
    many.run(PATH, "--osmosis-output={name}.out.json", "-v").assert_outcomes(passed=6)

    assert names(many) == ["plain", "x~temperature=0.0", "x~temperature=0.5"]
    assert sorted(path.name for path in many.root.glob("*.out.json")) == [
        *("plain.out.json", "x~temperature=0.0.out.json", "x~temperature=0.5.out.json")
    ]
    config = read_json(many.root / "x~temperature=0.5.out.json")["config"]
    assert (config["name"], config["sampling"]["temperature"]) == ("x~temperature=0.5", 0.5)
    cassettes = {path.name for path in (many.root / "cassettes").iterdir()}
    assert cassettes == {"many.plain.jsonl", "many.x~temperature=0.0.jsonl", "many.x~temperature=0.5.jsonl"}
    assert many.run(PATH, "--osmosis-replay").ret == 0


@pytest.mark.slow
def test_arguments_select_entries(many: Workspace) -> None:
    selections = {
        (f"{PATH}::plain",): {"plain[row0-run0]", "plain[row1-run0]"},
        (f"{PATH}::x~temperature=0.5[row1-run0]",): {"x~temperature=0.5[row1-run0]"},
        (f"{PATH}::plain[row0-run0]", f"{PATH}::x~temperature=0.5"): {
            *("plain[row0-run0]", "x~temperature=0.5[row0-run0]", "x~temperature=0.5[row1-run0]"),
        },
        (PATH, "-k", "temperature-0.5 and row1"): {"x~temperature=0.5[row1-run0]"},
        (PATH, "-m", "osmosis", "-k", "plain and row0"): {"plain[row0-run0]"},
    }
    for arguments, expected in selections.items():
        result = many.run(*arguments, "--co", "-q")
        assert {line.partition("::")[2] for line in result.outlines if line.startswith(PATH)} == expected, arguments
    many.run(f"{PATH}::plain").assert_outcomes(passed=2)
    assert names(many) == ["plain"]  # the others were not even begun


@pytest.mark.slow
def test_a_named_run_is_one_of_each_entry_and_goes_on_alone(many: Workspace) -> None:
    many.run(PATH, "--osmosis-run=nightly").assert_outcomes(passed=6)
    runs = many.root / ".osmosis" / "runs"
    assert {path.name for path in runs.iterdir()} == {
        *("nightly-plain", "nightly-x~temperature=0.0", "nightly-x~temperature=0.5")
    }

    for name in ("nightly", "nightly-plain"):
        again = many.run(f"{PATH}::plain", f"--osmosis-run={name}")
        again.assert_outcomes(passed=2)
        again.stdout.fnmatch_lines(["*resumes nightly-plain*"])
    many.run("--osmosis-from=nightly-x~temperature=0.5").assert_outcomes(passed=2)
    assert len(list(runs.iterdir())) == 3


TEST = """
import pytest

@pytest.mark.osmosis_eval("configs/eval/many.toml::{}", rows="1")
def test_it(rollout):
    assert rollout.row_index == 1
"""


@pytest.mark.addon
@pytest.mark.slow
def test_a_test_over_rollouts_names_an_entry(many: Workspace) -> None:
    for number, name in enumerate(("plain", "x~temperature=0.5", "nix")):
        many.write(f"test_{number}.py", TEST.format(name))

    result = many.run("--osmosis-source=model", "--continue-on-collection-errors")

    result.assert_outcomes(passed=2, errors=1)
    assert names(many) == ["plain-tests", "x~temperature=0.5-tests"]
    result.stdout.fnmatch_lines(['*no eval of this file is called "nix" (they are: plain, x~*'])
