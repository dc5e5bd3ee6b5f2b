"""Several evals in one command or TOML, and training configs: node ids, selection, comparisons, one overview.

Of a training config, code, secrets and rows are checked, and a few rows rolled out if there is a model to ask.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from pytest_osmosis.report.markdown import MARK
from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace, junit_cases, read_json, timeless, wait_until
from tests.servers import ChatServer, by_row, held, refusal, reply

CONFIGS = "--osmosis-config=configs/eval"


def test_the_duration_of_an_eval_ends_with_its_own_last_run(workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server:
        workspace.hurry()
        workspace.eval("a", rows=2)
        workspace.eval("b", rows=1, model={"base_url": server.base_url})
        session = workspace.start(CONFIGS, "--osmosis-no-probe")
        wait_until(lambda: server.requests, "the request")
        in_b = datetime.now(UTC)
        session.wait_for("1 in flight")  # b takes as long as the first line of the log
        server.release()
        assert session.wait() == 0, session.output
    results = workspace.results("a")
    began, ended = (datetime.fromisoformat(results["provenance"][key]) for key in ("started_at", "finished_at"))
    assert began <= ended <= in_b
    assert timedelta(0) < timedelta(milliseconds=results["summary"]["total_duration_ms"]) <= ended - began


def table(lines: Sequence[str]) -> list[list[str]]:
    """Return the cells of the table of evals, and the line below it."""
    first = max(number for number, line in enumerate(lines) if line.startswith("eval "))
    blank = lines.index("", first)
    return [*(re.split(r"\s{2,}", line) for line in lines[first:blank]), [lines[blank + 1]]]


def four_evals(workspace: Workspace) -> None:
    """Write one eval that holds, one that fails, one that is not measured, and one that was not begun before them."""
    gate = {"pass_rate": ">= 0.5"}
    workspace.eval("set10", rows=[{"score": 0.0}] * 2, gate=gate)
    workspace.eval("set2", rows=[{}, {"reward": "raises"}, {}, {}, {}], gate=gate, limits={"max_errors": 9})
    workspace.eval("set1", rows=[{"reward": "raises"}] * 2, gate=gate, limits={"max_errors": 9})
    workspace.eval("set9", rows=2)


@pytest.mark.journey
def test_several_evals_end_with_one_table_in_natural_order(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_evals(workspace)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(workspace.write("job.md", "what another step wrote\n")))

    lines = workspace.run(CONFIGS, "--osmosis-markdown=out/page.md", exits=9).outlines

    _, *rows, total = table(lines)
    assert [[row[0], row[4]] for row in rows[:4]] == [
        ["set1", "NOT MEASURED"], ["set2", "HOLDS"], ["set9", "-"], ["set10", "FAILS"],
    ]  # fmt: skip
    assert total[0].startswith("4 evals: 1 fails, 1 not measured, 1 holds, 1 without a gate; 6 of 11 runs passed, 3 ")
    start = next(number for number, line in enumerate(lines) if "- osmosis: 4 evals -" in line)
    end = next(number for number, line in enumerate(lines) if line.startswith("eval "))
    explained = [line for line in lines[start + 1 : end] if line and not line.startswith(" ")]
    named = [f"{name} (pytest-osmosis show {workspace.run_dirs(name)[-1].name})" for name in ("set1", "set2", "set10")]
    assert explained == [*named, "results: .osmosis/runs (pytest-osmosis runs lists them)"]
    block = lines[lines.index(named[1]) : lines.index("", lines.index(named[1]))]
    broke = "rewards:score: ZeroDivisionError: the reward function broke"
    assert [line.partition(" (")[0] for line in block[1:]] == [f"  1 run not measured: {broke}"]
    assert not any("rewards:score       >= 1" in line for line in lines), "no table of statistics"
    page, job = ((workspace.root / name).read_text(encoding="utf-8") for name in ("out/page.md", "job.md"))
    assert (job, page[: len(MARK)]) == ("what another step wrote\n" + page.removeprefix(MARK), MARK)
    assert [line.split(" | ")[0] for line in job.splitlines()[5:9]] == ["| set1", "| set2", "| set9", "| set10"]
    assert sum(line.startswith("### ") for line in job.splitlines()) == 5, "one of all, and one of each"


def test_header_table_and_places_have_each_of_several_evals_in_the_order_of_the_command(workspace: Workspace) -> None:
    four_evals(workspace)
    workspace.eval("set3", rows=[{"user_prompt": "the same"}] * 2, evaluation={"n": 2, "batch_size": 4})

    named = [f"configs/eval/set{number}.toml" for number in (9, 10, 3, 2)]
    lines = workspace.run(*named, "--osmosis-output=out/{name}.json").outlines

    first = lines.index("osmosis: 4 evals, 13 rollouts (-v shows each eval whole)")
    assert lines[first + 1 : first + 5] == [
        "  set9: demo/arithmetic (embedded), 2 rows x 1 run, 1 in flight",
        "  set10: demo/arithmetic (embedded), 2 rows x 1 run, 1 in flight, gate pass_rate >= 0.5",
        "  set3: demo/arithmetic (embedded), 2 rows x 2 runs, 4 in flight, 1 note",
        "  set2: demo/arithmetic (embedded), 5 rows x 1 run, 1 in flight, gate pass_rate >= 0.5",
    ]
    assert not any(line.startswith("  dataset:") for line in lines)
    assert [row[0] for row in table(lines)[1:5]] == ["set9", "set10", "set3", "set2"]
    assert [line for line in lines if line.startswith("results: ")] == [
        "results: out/set9.json, out/set10.json, out/set3.json and 1 more"
    ]


@PLAIN_AND_XDIST
@pytest.mark.parametrize("ends", ["interrupt", "maxfail"])
def test_what_ends_the_session_stops_no_eval_that_is_done(workspace: Workspace, ends: str) -> None:
    with ChatServer(by_row({0: [reply("42")]}, held(reply("42")))) as server:
        workspace.hurry()
        workspace.eval("a", rows=[{"score": 0.0}], gate={"pass_rate": ">= 0.0"})
        workspace.eval("b", rows=[{"score": 0.0}, *[{}] * 4], model={"base_url": server.base_url})
        session = workspace.start(CONFIGS, "--osmosis-no-probe", *(["-x"] if ends == "maxfail" else []))
        if ends == "interrupt":
            wait_until(lambda: len(server.requests) == 2, "two requests")
            wait_until(lambda: workspace.events("score", "b"), "the first score")
            session.interrupt()
        assert session.wait() in (1, 2), session.output
    assert (workspace.results("a")["status"], workspace.results("b")["status"]) == ("finished", "stopped")
    assert "a (pytest-osmosis show" not in session.output


def test_what_several_evals_met_is_told_once(workspace: Workspace) -> None:
    model = {"base_url": "http://127.0.0.1:9/v1", "max_retries": 0}
    for name in ("a", "b", "c"):
        workspace.eval(name, rows=2, gate={"pass_rate": ">= 0.5"}, model=model)

    lines = [line for line in workspace.run(CONFIGS, exits=9).outlines if not line.startswith("ERROR ")]

    assert sum("cannot reach http://127.0.0.1:9/v1: " in line for line in lines) == 2, (
        "when it happened, and in the end"
    )
    assert lines.count("stopped for the same reason as a") == 2
    nothing = "  gate pass_rate >= 0.5: NOT MEASURED: no rollout succeeded before the eval stopped"
    assert lines[lines.index("a, b, c") + 3] == nothing
    assert table(lines)[-1][0].startswith("3 evals: 3 not measured; none of 6 runs finished; ")


def test_verbose_shows_every_eval_whole_quiet_the_verdict_and_quieter_one_line(workspace: Workspace) -> None:
    four_evals(workspace)

    verbose = workspace.run(CONFIGS, "-v")
    sections = [line.strip("- ") for line in verbose.outlines if re.match("-+ osmosis", line)]
    assert sections == [*(f"osmosis: set{number}" for number in (1, 2, 9, 10)), "osmosis: 4 evals"]
    assert sum(line.startswith("rewards:score       >= 1") for line in verbose.outlines) == 4
    assert len(table(verbose.outlines)) == 7
    verbose.stdout.fnmatch_lines(["osmosis: set10 (configs/eval/set10.toml)", "  dataset: data/set10.jsonl, all 2"])

    several, one = workspace.run(CONFIGS, "-q"), workspace.run("--osmosis-config=configs/eval/set10.toml", "-q")
    assert len(table(several.outlines)) == 7
    assert not any("osmosis: 4 evals" in line or "first: row" in line for line in several.outlines)
    for result, folder in zip((several, one), workspace.run_dirs("set10")[-2:], strict=True):
        worst = f"worst rows: row0 0 of 1, row1 0 of 1; pytest-osmosis show {folder.name} row0-run0"
        assert f"osmosis: set10: {worst}" in result.outlines
    verdict = [line for line in one.outlines if line.startswith("osmosis: set10: ")]
    assert [line.split(": ")[2] for line in verdict] == ["pass rate 0.000", "gate pass_rate >= 0.5", "worst rows"]
    assert not any("tokens" in line for line in one.outlines)
    (ours,) = (line for line in workspace.run(CONFIGS, "-qq").outlines if "osmosis" in line)
    assert ours.startswith("osmosis: 4 evals: 1 fails, 1 not measured, 1 holds, 1 without a gate; 6 of 11 runs")


def test_pages_that_cannot_be_made_cost_nothing_else(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def overflows(*_given: object, **_options: object) -> Iterator[str]:
        raise OverflowError("too large")

    workspace.eval("x", rows=1, gate={"pass_rate": ">= 1"})
    workspace.eval("y", rows=[{"score": 0.0}], gate={"pass_rate": ">= 1"})
    for place in ("reports.page", "terminal.overview_lines"):
        monkeypatch.setattr(f"pytest_osmosis.plugin.{place}", overflows)

    result = workspace.run(CONFIGS, "--osmosis-markdown=page.md", "--junitxml=junit.xml", exits=1)

    result.assert_outcomes(passed=2, xfailed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines("""
        *page.md could not be written: OverflowError: too large (*
        osmosis: the summary could not be printed: OverflowError: too large (*
    """)
    assert [workspace.results(name)["gates"][0]["state"] for name in ("x", "y")] == ["holds", "fails"]
    assert len(junit_cases(workspace.root / "junit.xml")) == 5


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


@pytest.mark.addon
def test_a_test_over_rollouts_names_an_entry(many: Workspace) -> None:
    for number, name in enumerate(("plain", "x,temperature=0.5", "nix")):
        mark = f"@pytest.mark.osmosis_eval('{PATH}::{name}', rows='1')"
        test = "def test_it(rollout):\n    assert rollout.row_index == 1\n"
        many.write(f"test_{number}.py", f"import pytest\n\n{mark}\n{test}")

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


TRAINING_FILE = "configs/training/x.toml"
TRAINING = f"--osmosis-config={TRAINING_FILE}"

MAIN = """
from pytest_osmosis import AgentWorkflow, Grader

class Flow(AgentWorkflow):
    async def run(self, ctx):
        await ctx.chat(ctx.prompt)

class Judge(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(ctx.label in ctx.sample.messages[-1]["content"]))
"""
TRAINING_TOML = """\
[experiment]
rollout = "mine"
entrypoint = "main.py"
model_path = "Qwen/Qwen3.6-35B-A3B"
dataset = "x"

[training]
max_prompt_length = 20
max_response_length = 30

[secrets]
required = [{secrets}]
"""


def training(
    workspace: Workspace, rows: Sequence[dict[str, object]] | None = None, main: str = MAIN, secrets: str = ""
) -> None:
    """Write configs/training/x.toml with its rollout and its dataset, by default eight rows that fit."""
    given = [{"user_prompt": f"What is {n} * 2?", "ground_truth": str(2 * n)} for n in range(8)]
    workspace.write("data/x.jsonl", "".join(json.dumps(row) + "\n" for row in (given if rows is None else rows)))
    workspace.write("rollouts/mine/main.py", main)
    workspace.write(TRAINING_FILE, TRAINING_TOML.format(secrets=secrets))


@pytest.mark.journey
def test_a_preflight_without_a_model_loads_the_code_and_checks_the_rows(workspace: Workspace) -> None:
    training(workspace)

    result = workspace.run(TRAINING, "-rA", exits=0)

    result.assert_outcomes(skipped=5)
    result.stdout.fnmatch_lines("""
        osmosis: x (configs/training/x.toml), preflight of a training config
          base model: Qwen/Qwen3.6-35B-A3B
          dataset: data/x.jsonl, all 8
          no model to ask: nothing is rolled out or graded
    """)
    result.stdout.fnmatch_lines(["SKIPPED ?5? configs/training/x.toml:1: no model to ask: nothing was rolled out*"])
    assert workspace.run_dirs() == []


def test_a_few_rows_are_rolled_out_and_graded_if_there_is_a_model(workspace: Workspace) -> None:
    training(workspace)
    with ChatServer(reply("0")) as server:
        result = workspace.run(TRAINING_FILE, f"--osmosis-base-url={server.base_url}", exits=0)
        bodies = [seen.body for seen in server.requests if seen.body["max_tokens"] == 30]
    result.assert_outcomes(passed=5)
    assert len(bodies) == 5
    assert {body["model"] for body in bodies} == {"Qwen/Qwen3.6-35B-A3B"}
    result.stdout.fnmatch_lines(["  slice: 5 rows x 1 run, 5 in flight, scores do not decide"])
    results = workspace.results()
    assert (results["partial"], results["smoke_of"]) == (True, 8)
    assert [run["scores"] for row in results["rows"] for run in row["runs"]] == [{"reward": 1.0}] + [
        {"reward": 0.0}
    ] * 4


def test_secrets_and_rows_are_reported_together(workspace: Workspace) -> None:
    rows: list[dict[str, object]] = [
        {"user_prompt": "What is 1 * 1?", "ground_truth": "1"},
        {"user_prompt": " ", "ground_truth": "1"},
        {"user_prompt": "What is 1 * 3?", "ground_truth": None},
    ]
    training(workspace, rows, secrets='"FIRST_TOKEN"')
    workspace.run(TRAINING, "--osmosis-model=demo/arithmetic", exits=4).stderr.fnmatch_lines("""
        ERROR: data/x.jsonl:2: row 1: column "user_prompt": must be a non-blank string*
        ERROR: data/x.jsonl:3: row 2: has neither a ground_truth nor metadata, so no Grader would be called*
        ERROR: secret FIRST_TOKEN: missing or empty in the environment*
    """)
    assert workspace.run_dirs() == []


def test_prompts_that_may_be_too_long_are_noted(workspace: Workspace) -> None:
    training(workspace, [{"user_prompt": "What is 1 * 4? " * times, "ground_truth": "4"} for times in (1, 9)])

    result = workspace.run(TRAINING, exits=0)

    note = "1 prompt may be longer than ?training? max_prompt_length = 20: the longest, row 1, has about 34 tokens"
    result.stdout.fnmatch_lines([f"  note: {note}, estimated as 4 characters each"])


def test_a_rollout_that_breaks_fails_and_a_server_that_is_down_measures_nothing(workspace: Workspace) -> None:
    training(workspace)
    with ChatServer(reply("0"), refusal("no")) as server:
        asked = (f"--osmosis-base-url={server.base_url}", "--osmosis-no-probe")
        result = workspace.run(TRAINING, *asked, "--osmosis-smoke", "--osmosis-smoke-rows=2", exits=1)
    down = workspace.run(TRAINING, "--osmosis-base-url=http://127.0.0.1:9/v1", exits=9)

    result.assert_outcomes(passed=1, errors=1)
    down.assert_outcomes(skipped=5, errors=1)


def test_a_preflight_and_an_eval_run_in_one_command(workspace: Workspace) -> None:
    training(workspace)
    workspace.eval("y", rows=2)

    result = workspace.run(TRAINING_FILE, "configs/eval/y.toml", "--junitxml=junit.xml", exits=0)

    result.assert_outcomes(passed=2, skipped=5)
    result.stdout.fnmatch_lines(["  x: preflight of a training config, no model to ask", "  y: demo/arithmetic*"])
    names = {case for case in (workspace.root / "junit.xml").read_text().split('"') if case.startswith("x[")}
    assert names == {f"x[row{n}-run0]" for n in range(5)}


@pytest.mark.parametrize("option", ["--osmosis-dry-run", "--co"])
def test_listing_a_preflight_loads_no_code(workspace: Workspace, option: str) -> None:
    training(workspace, main="raise SystemExit\n", secrets="" if option == "--osmosis-dry-run" else '"FIRST_TOKEN"')

    assert workspace.run(TRAINING, option).ret == 0

    assert not (workspace.root / ".osmosis").exists()
