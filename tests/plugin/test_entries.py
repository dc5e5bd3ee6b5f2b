"""A TOML with several evals: their node ids, how a command selects them, what they leave, and how they are compared."""

from __future__ import annotations

import json

import pytest

from tests.plugin.workspaces import Workspace, read_json, timeless, wait_until
from tests.servers import ChatServer, held, reply

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
    assert names(many) == ["plain", "x,temperature=0.0", "x,temperature=0.5"]
    assert sorted(path.name for path in many.root.glob("*.out.json")) == [
        *("plain.out.json", "x,temperature=0.0.out.json", "x,temperature=0.5.out.json")
    ]
    config = read_json(many.root / "x,temperature=0.5.out.json")["config"]
    assert (config["name"], config["sampling"]["temperature"]) == ("x,temperature=0.5", 0.5)
    cassettes = {path.name for path in (many.root / "cassettes").iterdir()}
    assert cassettes == {"many.plain.jsonl", "many.x,temperature=0.0.jsonl", "many.x,temperature=0.5.jsonl"}
    assert many.run(PATH, "--osmosis-replay").ret == 0


def test_arguments_select_entries(many: Workspace) -> None:
    selections = {
        (f"{PATH}::plain",): {"plain[row0-run0]", "plain[row1-run0]"},
        (f"{PATH}::x,temperature=0.5[row1-run0]",): {"x,temperature=0.5[row1-run0]"},
        (f"{PATH}::plain[row0-run0]", f"{PATH}::x,temperature=0.5"): {
            *("plain[row0-run0]", "x,temperature=0.5[row0-run0]", "x,temperature=0.5[row1-run0]"),
        },
        (PATH, "-k", "temperature-0.5 and row1"): {"x,temperature=0.5[row1-run0]"},
        (PATH, "-m", "osmosis", "-k", "plain and row0"): {"plain[row0-run0]"},
    }
    for arguments, expected in selections.items():
        result = many.run(*arguments, "--co", "-q")
        assert {line.partition("::")[2] for line in result.outlines if line.startswith(PATH)} == expected, arguments
    many.run(f"{PATH}::plain").assert_outcomes(passed=2)
    assert names(many) == ["plain"]  # the others were not even begun


def test_a_named_run_is_one_of_each_entry_and_goes_on_alone(many: Workspace) -> None:
    many.run(PATH, "--osmosis-run=nightly").assert_outcomes(passed=6)
    runs = many.root / ".osmosis" / "runs"
    assert {path.name for path in runs.iterdir()} == {
        *("nightly-plain", "nightly-x,temperature=0.0", "nightly-x,temperature=0.5")
    }

    for name in ("nightly", "nightly-plain"):
        again = many.run(f"{PATH}::plain", f"--osmosis-run={name}")
        again.assert_outcomes(passed=2)
        again.stdout.fnmatch_lines(["*resumes nightly-plain*"])
    many.run("--osmosis-from=nightly-x,temperature=0.5").assert_outcomes(passed=2)
    assert len(list(runs.iterdir())) == 3


TEST = """
import pytest

@pytest.mark.osmosis_eval("configs/eval/many.toml::{}", rows="1")
def test_it(rollout):
    assert rollout.row_index == 1
"""


@pytest.mark.addon
def test_a_test_over_rollouts_names_an_entry(many: Workspace) -> None:
    for number, name in enumerate(("plain", "x,temperature=0.5", "nix")):
        many.write(f"test_{number}.py", TEST.format(name))

    result = many.run("--osmosis-source=model", "--continue-on-collection-errors")

    result.assert_outcomes(passed=2, errors=1)
    assert names(many) == ["plain-tests", "x,temperature=0.5-tests"]
    result.stdout.fnmatch_lines(['*no eval of this file is called "nix" (they are: plain, x,*'])


# -- entries run together under one cap, and end with a table that compares them ---------------------------


FILE = "configs/eval/several.toml"
SEVERAL = f"--osmosis-config={FILE}"
HEAD = """
[data]
path = "data/x.jsonl"
rows = "all"
[secrets]
required = []
[evaluation]
batch_size = {cap}
[model]
base_url = "{base_url}"
"""


def entries(workspace: Workspace, *evals: str, rows: int = 8, cap: int = 6, base_url: str = "") -> None:
    """Write a config with an entry for each of `evals`: the function that scores it, or "" for the usual one."""
    workspace.eval("x", rows=[{"score": float(index % 2)} for index in range(rows)])
    (workspace.root / "configs/eval/x.toml").unlink()
    blocks = [
        f'[[eval]]\nname = "e{number}"\nmodel = "model-{number}"\n[eval.scoring]\neval_fns = ["{scorer}"]\n'
        for number, scorer in enumerate(scorer or "rewards:score" for scorer in evals)
    ]
    workspace.write(FILE, HEAD.format(cap=cap, base_url=base_url) + "\n".join(blocks))


def models(server: ChatServer) -> set[str]:
    return {body["model"] for body in server.bodies}


def test_entries_share_one_cap_and_are_compared(workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server:
        entries(workspace, *[""] * 6, base_url=server.base_url)
        session = workspace.start(SEVERAL, "--osmosis-no-probe", "--osmosis-output=out/", "--osmosis-markdown=page.md")
        wait_until(lambda: server.in_flight == 6, "six requests in flight")
        together = models(server)
        server.release()
        status = session.wait()

    assert status == 1, session.output  # every other row fails
    assert together == {f"model-{number}" for number in range(4)}, "four entries begin together"
    assert len(server.requests) == 6 * 8
    assert server.max_in_flight == 6
    table = read_json(workspace.root / "out/comparison.json")
    assert [entry["name"] for entry in table["entries"]] == [f"e{number}" for number in range(6)]
    assert all(entry["difference"]["paired"] for entry in table["entries"][1:])
    for number in range(6):
        assert read_json(workspace.root / f"out/e{number}.json")["comparison"] == table
    assert (
        "compared with e0, over the 8 rows that both measured; p by Holm's method for 5 comparisons" in session.output
    )
    assert "comparison: out/comparison.json" in session.output
    page = (workspace.root / "page.md").read_text(encoding="utf-8")
    assert "| eval | model | runs | pass rate (95% interval) | mean | to the first (95% interval) | p |" in page
    compared = json.loads(workspace.cli("runs", "compare", FILE, "--json").stdout.str())
    assert timeless(compared) == timeless(table)


def test_code_of_a_later_entry_that_does_not_load_is_an_error_of_that_entry(workspace: Workspace) -> None:
    workspace.write("broken.py", "raise RuntimeError('broken module')\n")
    with ChatServer(reply("42")) as server:
        entries(workspace, *[""] * 4, "broken:score", "", rows=2, base_url=server.base_url)
        text = workspace.run(SEVERAL, exits=9).stdout.str()  # what was not measured has no verdict
        inline = workspace.run(SEVERAL, "--osmosis-inline", exits=9)
        entries(workspace, "", "broken:score", "broken:score", rows=2, base_url=server.base_url)
        at_once = workspace.run(SEVERAL, exits=4)  # nothing was spent yet

    assert "10 passed, 2 skipped, 1 error" in inline.stdout.str().replace("5 failed, 5 passed", "10 passed")
    assert "ERROR configs/eval/several.toml::e4[code] - stopped: broken:score:" in text
    assert "broken:score: does not load: RuntimeError: broken module" in text
    assert "raise RuntimeError('broken module')" in text
    assert "e4: not compared: not measured: broken:score: does not load: RuntimeError: broken module" in text
    assert models(server) == {f"model-{number}" for number in (0, 1, 2, 3, 5)}
    results = workspace.results("e4")
    assert (results["status"], len(results["pending"])) == ("failed", 2)
    assert workspace.results("e5")["comparison"]["compared"] == 4
    assert at_once.stderr.str().count("e1, e2: broken:score: does not load: RuntimeError: broken module") == 1
    assert at_once.stderr.str().count("Traceback") == 1


def test_a_session_that_is_interrupted_goes_on_with_every_entry(workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server:
        workspace.hurry()
        entries(workspace, *[""] * 6, rows=4, base_url=server.base_url)
        session = workspace.start(SEVERAL, "--osmosis-no-probe")
        wait_until(lambda: server.in_flight == 6, "six requests in flight")
        session.interrupt()
        assert session.wait() == 2, session.output
        assert [workspace.results(f"e{number}")["status"] for number in range(6)] == ["stopped"] * 6
        assert [len(workspace.results(f"e{number}")["pending"]) for number in range(6)] == [4] * 6
        server.release()
        workspace.run(SEVERAL, "--osmosis-no-probe", "--osmosis-resume", exits=1)
    assert [len(workspace.run_dirs(f"e{number}")) for number in range(6)] == [1] * 6
    assert [workspace.results(f"e{number}")["summary"]["measured"] for number in range(6)] == [4] * 6
    assert workspace.results("e5")["comparison"]["compared"] == 5


def test_merged_shards_are_compared_over_all_their_rows(workspace: Workspace) -> None:
    with ChatServer(reply("42")) as server:
        entries(workspace, "", "", rows=8, base_url=server.base_url)
        for shard in (1, 2):
            workspace.run(SEVERAL, "--osmosis-no-probe", f"--osmosis-shard={shard}/2", f"--osmosis-output=s{shard}/")
        files = sorted(str(path) for path in workspace.root.glob("s?/*.json"))
        merged = workspace.cli("merge", *reversed(files), "-o", "merged/")
        part = workspace.cli("merge", *files[:3], "-o", "part/")
        alone = workspace.cli("merge", "s1/comparison.json")

    assert merged.ret in (0, 1), merged.stderr.str()
    table = read_json(workspace.root / "merged/e1.json")["comparison"]
    assert [(entry["name"], entry["runs"]) for entry in table["entries"]] == [("e0", 8), ("e1", 8)]
    assert table["entries"][1]["difference"]["rows"] == 8
    assert read_json(workspace.root / "s1/e1.json")["comparison"]["entries"][1]["difference"]["rows"] == 4
    assert "over the 8 rows that both measured" in merged.stdout.str()
    assert "not compared: not all of its shards were merged" in part.stdout.str()
    assert alone.ret == 4
    assert "s1/comparison.json: compares several evals; name the results of shards" in alone.stderr.str()
