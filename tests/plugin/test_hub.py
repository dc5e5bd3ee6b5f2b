"""Datasets come from a Hub on loopback, and files of `prime eval` are pushed to it, by the real library."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.plugin.workspaces import Workspace

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

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        _, _, name = self.path.partition(f"/resolve/{SHA}/")
        if self.path in ("/api/datasets/me/sums", "/api/datasets/me/sums/revision/refs%2Fpr%2F1"):
            self._answer({"id": "me/sums", "sha": SHA, "siblings": [{"rfilename": each} for each in self.server.files]})
        elif name in self.server.files:
            self._answer(self.server.files[name].encode(), headers={"ETag": f'"{SHA}"', "X-Repo-Commit": SHA})
        else:
            self._answer({"error": "not here"}, 404, {"X-Error-Code": "RepoNotFound"})

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
