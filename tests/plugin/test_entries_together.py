"""The entries of one config run together under one cap, and end with a table that compares them."""

from __future__ import annotations

import json

import pytest

from tests.plugin.workspaces import Workspace, read_json, timeless, wait_until
from tests.servers import ChatServer, held, reply

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
