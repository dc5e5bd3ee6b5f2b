"""`[output] save_results`: files as `prime eval` writes them; and a Hub, to which they are pushed."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.results.read import read_document
from tests.plugin.workspaces import CONFIG, Workspace, constants, hosts_under, wait_until

ROWS: list[dict[str, Any]] = [{"score": 1.0}, {"score": 0.25}, {"reward": "raises"}]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "prime-files.md"
OUTPUT = {"save_results": True}


def files_in(workspace: Workspace) -> tuple[Path, list[dict[str, Any]], dict[str, Any]]:
    (folder,) = (workspace.root / "outputs" / "evals" / "x--demo--arithmetic").iterdir()
    lines = (folder / "results.jsonl").read_text().splitlines()
    return folder, [json.loads(line) for line in lines], json.loads((folder / "metadata.json").read_text())


def test_each_session_leaves_the_files_of_prime_eval(workspace: Workspace) -> None:
    workspace.eval("x", ROWS, evaluation={"n": 2}, output=OUTPUT, limits={"max_errors": 9})
    result = workspace.run(CONFIG, "-k", "not row2")
    result.stdout.fnmatch_lines(["results as prime eval has them: outputs/evals/x--demo--arithmetic/x-*"])
    folder, lines, metadata = files_in(workspace)
    assert folder.name == workspace.run_dirs("x")[0].name
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert [(line["example_id"], line["run_index"], line["reward"]) for line in lines] == [
        (0, 0, 1.0),
        (0, 1, 1.0),
        (1, 0, 0.25),
        (1, 1, 0.25),
    ]
    first = lines[0]
    assert (first["error"], first["is_completed"], first["is_truncated"]) == (None, True, False)
    assert first["metrics"] == {"rewards:score": 1.0} == {"rewards:score": first["rewards:score"]}
    assert first["token_usage"]["output_tokens"] > 0
    assert first["timing"]["generation"]["duration"] * 1000 == pytest.approx(first["timing"]["generation_ms"])
    assert (metadata["env_id"], metadata["model"], metadata["env_args"]) == ("x", "demo/arithmetic", {})
    assert (metadata["num_examples"], metadata["rollouts_per_example"], metadata["pass_threshold"]) == (2, 2, 1.0)
    assert (metadata["avg_reward"], metadata["avg_metrics"]) == (0.625, {"rewards:score": 0.625})
    assert metadata["osmosis"]["run"] == folder.name
    result = workspace.run(CONFIG, "--osmosis-resume")
    _, lines, metadata = files_in(workspace)
    assert [line["reward"] for line in lines] == [1.0, 1.0, 0.25, 0.25, 0.0, 0.0]
    assert lines[-1]["error_chain"] == "ZeroDivisionError: the reward function broke"
    assert (metadata["num_examples"], round(metadata["avg_error"], 3)) == (3, 0.333)
    lines_part, _, metadata_part = PAGE.read_text().partition("## metadata.json")
    members = {key for line in lines for key in line} - {"rewards:score"}
    for text, keys in ((lines_part, members), (metadata_part, metadata.keys())):
        named = {name for row in re.findall(r"^- (`.*)$", text, re.M) for name in re.findall(r"`([a-z_]+)`", row)}
        assert keys - named == set()


def test_a_killed_session_leaves_the_rows_that_were_complete(workspace: Workspace) -> None:
    workspace.write("agent.py", HELD)
    (workspace.root / "held").touch()
    rows = [{"score": 1.0}] * 4
    agent = {"agent": "agent:rollout"}
    workspace.eval("x", rows, evaluation={"n": 2, "batch_size": 8}, agent=agent, output=OUTPUT)
    folder = workspace.root / "outputs/evals/x--demo--arithmetic/one"

    session = workspace.start(CONFIG, "--osmosis-run=one")
    wait_until(lambda: metadata_in(folder).get("num_examples") == 2, "two whole rows")  # written after their lines
    session.kill()
    wait_until(lambda: not hosts_under(workspace.root), "the hosts to end")

    assert sorted(found_in(folder)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    metadata = metadata_in(folder)
    assert (metadata["num_examples"], metadata["rollouts_per_example"], metadata["avg_reward"]) == (2, 2, 1.0)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    (workspace.root / "held").unlink()
    foreign(folder, workspace.root / "vf")
    taken_over = workspace.run(CONFIG, "--osmosis-resume-from=vf", "--osmosis-run=two")
    taken_over.stdout.fnmatch_lines(["*4 of 8 runs are from vf"])
    workspace.run(CONFIG, f"--osmosis-resume-from={folder}", exits=0)
    assert found_in(folder) == [(row, index) for row in range(4) for index in range(2)]


HELD = """
import asyncio, os

async def rollout(ctx):
    while os.path.exists("held") and (ctx.row_index == 3 or (ctx.row_index, ctx.run_index) == (2, 1)):
        await asyncio.sleep(0.02)
    await ctx.chat(ctx.prompt)
"""


def metadata_in(folder: Path) -> dict[str, Any]:
    path = folder / "metadata.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def found_in(folder: Path) -> list[tuple[int, int]]:
    lines = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
    return [(line["example_id"], line["run_index"]) for line in lines]


def test_an_abbreviated_summary_shows_no_conversation(workspace: Workspace) -> None:
    workspace.eval("x", ROWS, limits={"max_errors": 9})
    workspace.write("patient.py", constants({"addons.verifiers.prime_files.LAST_S": 60.0}))  # or it waits for less
    whole = workspace.run(CONFIG, "-rfE").stdout.str()
    brief = workspace.run(
        *("-ppatient", CONFIG, "--osmosis-abbreviated-summary"),
        *("--osmosis-heartbeat-url=http://127.0.0.1:9/", "-rfE"),
    )
    assert "= FAILURES =" in whole
    assert "ZeroDivisionError" in whole
    text = brief.stdout.str()
    assert "= FAILURES =" not in text
    assert "Traceback" not in text
    for line in ("*heartbeat* to 127.0.0.1 failed: *", "FAILED *row1-run0*", "ERROR *row2-run0*"):
        brief.stdout.fnmatch_lines([line])
    assert brief.ret == 1


def foreign(folder: Path, to: Path, change: Any = None) -> list[dict[str, Any]]:
    """Copy files as another program would have written them, and return the lines."""
    metadata = json.loads((folder / "metadata.json").read_text())
    del metadata["osmosis"]
    metadata["sampling_args"] = {"n": 1, "extra_body": {}, "max_tokens": None}
    metadata["version_info"]["vf_version"] = "0.1.14"
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    for line in lines:
        del line["run_index"]
    if change is not None:
        change(metadata, lines)
    to.mkdir()
    (to / "metadata.json").write_text(json.dumps(metadata))
    (to / "results.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return lines


def test_files_of_another_program_begin_a_new_run(workspace: Workspace) -> None:
    workspace.eval("x", [{"score": 1.0}] * 3, evaluation={"n": 2}, output=OUTPUT)
    workspace.run(CONFIG, "--osmosis-run=first", "-k", "row0- or row1-")
    folder = workspace.root / "outputs/evals/x--demo--arithmetic/first"
    there = workspace.root / "vf"

    def change(metadata: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        lines[1]["error"] = {"error": "ModelError", "error_chain_repr": "", "error_chain_str": ""}
        lines[2]["completion"][-1]["content"] = "taken over \u2028 whole"
        lines += [{**lines[3], "reward": float("nan")}, lines[3], {**lines[3], "example_id": 99}]

    foreign(folder, there, change)
    with (there / "results.jsonl").open("a") as file:
        file.write('{"example_id": 2, "prom')
    dry = workspace.run(CONFIG, "--osmosis-resume-from=vf", "--osmosis-dry-run")
    dry.stdout.fnmatch_lines(["*from vf: 3 of 6 rollouts, 3 left"])
    assert [path.name for path in (workspace.root / ".osmosis/runs").iterdir()] == ["first"]
    result = workspace.run(CONFIG, "--osmosis-resume-from=vf", "--osmosis-run=second", exits=0)
    for line in (
        "*2 rollouts in the files: made again, because they ended with an error",
        "*2 rollouts in the files: left out: of examples that are not selected, or beyond the 2 of an example",
        "*the last line of results.jsonl is torn and was passed over",
        "*3 of 6 runs are from vf",
    ):
        result.stdout.fnmatch_lines([line])
    results = read_document(workspace.root / ".osmosis/runs/second/results.json")
    assert results["provenance"]["imported"] == {"folder": "vf", "runs": 3, "redone": 2, "verifiers": "0.1.14"}
    origins = {
        (row["row_index"], run["run_index"]): run.get("imported_from") for row in results["rows"] for run in row["runs"]
    }
    assert origins == {(0, 0): "vf", (0, 1): None, (1, 0): "vf", (1, 1): "vf", (2, 0): None, (2, 1): None}
    assert "taken over" in (workspace.root / ".osmosis/runs/second/journal.jsonl").read_text()
    (there / "results.jsonl").unlink()
    workspace.run(CONFIG, "--osmosis-run=second", exits=0)
    again = read_document(workspace.root / ".osmosis/runs/second/results.json")
    assert again["provenance"]["imported"]["runs"] == 3, "also without the files"


def test_files_of_another_eval_are_refused_with_the_differences(workspace: Workspace) -> None:
    workspace.eval("x", 2, evaluation={"n": 2}, output=OUTPUT)
    workspace.run(CONFIG)
    folder, _, _ = files_in(workspace)

    def change(metadata: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        metadata["model"] = "other"
        metadata["env_args"] = {"hard": True}
        metadata["sampling_args"]["temperature"] = 0.5
        metadata["rollouts_per_example"] = 3

    def change_prompts(metadata: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        lines[0]["prompt"][0]["content"] = "something else"

    foreign(folder, workspace.root / "vf", change)
    foreign(folder, workspace.root / "prompts", change_prompts)
    result = workspace.run(CONFIG, "--osmosis-resume-from=vf", exits=4)
    result.stderr.fnmatch_lines("""
        *--osmosis-resume-from=vf: cannot be resumed, because its rollouts were made with other inputs:
          model: "other" -> "demo/arithmetic"
          env_args: {"hard": true} -> {}
          sampling_args temperature: 0.5 -> not set
          rollouts_per_example: 3 -> 2, and it may only grow
    """)
    result = workspace.run(CONFIG, "--osmosis-resume-from=prompts", exits=4)
    result.stderr.fnmatch_lines(["  the prompt of example 0: changed"])


SHA = "0123456789abcdef0123456789abcdef01234567"
COMMAND = ("--osmosis-config=configs/eval/x.toml", "--osmosis-save-to-hf-hub")


class Hub(ThreadingHTTPServer):
    """A Hub with datasets: `created` are the bodies of new ones, `files` what was committed. All are at commit SHA."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubRequest)
        self.created: list[dict[str, object]] = []
        self.files: dict[str, str] = {}
        self.tokens: set[str | None] = set()
        self.refuses = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubRequest(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tokens.add(self.headers["Authorization"])
        if self.server.refuses:
            self._answer({"error": "no such luck"}, 403)
        elif self.path == "/api/repos/create":
            self.server.created.append(json.loads(body))
            self._answer({"url": f"{self.server.url}/datasets/me/{json.loads(body)['name']}"})
        elif "/preupload/" in self.path:
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            files = [{"path": each["path"], **mode} for each in json.loads(body)["files"]]
            self._answer({"files": files})
        elif "/commit/" in self.path:
            lines = [json.loads(line) for line in body.splitlines() if line.strip()]
            for each in (line["value"] for line in lines if line["key"] == "file"):
                self.server.files[each["path"]] = base64.b64decode(each["content"]).decode()
            url = f"{self.server.url}/datasets/me/x/commit/{'0' * 40}"
            self._answer({"commitUrl": url, "commitOid": "0" * 40, "hookOutput": ""})
        else:
            self._answer({"errors": [], "warnings": []})

    def do_GET(self) -> None:
        _, _, name = self.path.partition(f"/resolve/{SHA}/")
        if self.path in ("/api/datasets/me/sums", "/api/datasets/me/sums/revision/refs%2Fpr%2F1"):
            self._answer({"id": "me/sums", "sha": SHA, "siblings": [{"rfilename": each} for each in self.server.files]})
        elif name in self.server.files:
            self._answer(self.server.files[name].encode(), headers={"ETag": f'"{SHA}"', "X-Repo-Commit": SHA})
        else:
            self._answer({"error": "not here"}, 404, {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _answer(self, value: object, status: int = 200, headers: Mapping[str, str] = {}) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdefABCDEF")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_results_are_pushed_by_a_command_that_says_so(workspace: Workspace, hub: Hub) -> None:
    workspace.eval("x", [{"score": 1.0}, {"score": 1.0}], evaluation={"n": 2}, output={"save_to_hf_hub": True})
    config = workspace.run(COMMAND[0])
    config.stdout.fnmatch_lines(["*not pushed to the Hugging Face Hub: only --osmosis-save-to-hf-hub*"])
    assert (hub.created, (workspace.root / "outputs").exists(), config.ret) == ([], False, 0)

    workspace.run(*COMMAND, exits=0).stdout.fnmatch_lines([f"*pushed to {hub.url}/datasets/me/x_demo_arithmetic_n2_r2"])
    (created,) = hub.created
    assert (created["name"], created["type"]) == ("x_demo_arithmetic_n2_r2", "dataset")
    assert created.get("private") is True or created.get("visibility") == "private"
    (folder,) = (workspace.root / "outputs/evals/x--demo--arithmetic").iterdir()
    assert hub.files["results.jsonl"] == (folder / "results.jsonl").read_text()
    assert hub.files["metadata.json"] == (folder / "metadata.json").read_text()
    assert "data_files: results.jsonl" in hub.files["README.md"]
    assert hub.tokens == {"Bearer hf_0123456789abcdefABCDEF"}

    hub.refuses = True
    failed = workspace.run(*COMMAND, "--osmosis-hf-hub-dataset-name=me/mine", "-q", exits=0)
    failed.stdout.fnmatch_lines(["osmosis: x: not pushed to the Hugging Face Hub (me/mine): HfHubHTTPError: *403*"])


def test_a_dataset_of_the_hub_is_fetched_and_pinned_to_the_commit_that_a_branch_was(
    workspace: Workspace, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processes: the library reads the address of the Hub when it is imported."""
    workspace.eval("x", [{"score": 1.0}], limits={"max_errors": 99})
    hub.files = {"README.md": "Sums.", "test.jsonl": (workspace.root / "data/x.jsonl").read_text()}
    command = (COMMAND[0], "-q", "--osmosis-set=experiment.dataset=hf://datasets/me/sums@refs%2Fpr%2F1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    ran = workspace.run_process(*command)

    assert ran.ret == 0
    config = workspace.results()["config"]
    assert config["dataset"] == f"hf://datasets/me/sums@{SHA}/test.jsonl"
    hub.files["train.jsonl"] = ""
    several = workspace.run_process(COMMAND[0], "--osmosis-dataset=hf://datasets/me/sums")
    assert several.ret == 4
    several.stderr.fnmatch_lines(
        [
            "ERROR: hf://datasets/me/sums: name one file, as in hf://datasets/me/sums/test.jsonl; "
            "it has test.jsonl, train.jsonl"
        ]
    )
    nowhere = workspace.run_process(COMMAND[0], "--osmosis-dataset=hf://datasets/me/none/x.jsonl")
    assert nowhere.ret == 4
    nowhere.stderr.fnmatch_lines(["ERROR: hf://datasets/me/none/x.jsonl: cannot be fetched: 404*"])
