"""Files that verifiers reads and goes on with, and files of vf-eval with which we go on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.workspaces import Shell, Workspace, read_json
from tests.servers import ChatServer, answered, never

RELEASE = ".".join(version("verifiers").split(".")[:2]) if find_spec("verifiers") else ""
HAS_OLD_TABLE = RELEASE == "0.1" and "0.1.13" in version("verifiers")
"""True for the release whose table breaks on the times in our files, once it has saved everything."""
ENVIRONMENT = Path(__file__).parent / "environments" / "sums_env.py"
SAVED = "outputs/evals/sums-env--openai--m"
READ = """
import json, sys
from pathlib import Path
from verifiers.scripts import tui
from verifiers.utils.path_utils import find_latest_incomplete_eval_results_path, is_valid_eval_results_path
from verifiers.utils.save_utils import load_outputs, validate_resume_metadata

folder = Path(sys.argv[1])
validate_resume_metadata(folder, "sums-env", "openai/m", 3, 2)
shown = None
if sys.argv[2] == "0.1":  # 0.2 dropped its viewer
    (run,) = tui.discover_results("environments", "outputs")["sums-env"]["openai/m"]
    lines = tui.LazyRunResults(run)
    shown = [len(lines), lines[0]["metrics"], run.load_metadata()["avg_reward"]]
print(json.dumps({
    "valid": is_valid_eval_results_path(folder),
    "rewards": [each["reward"] for each in load_outputs(folder)],
    "incomplete": str(find_latest_incomplete_eval_results_path("sums-env", "openai/m", 4, 2, output_dir="outputs")),
    "shown": shown,
}))
"""
ANSWER = answered(lambda body: "2" if "1 + 1" in str(body["messages"]) else "1")
EVAL = "from verifiers.scripts.eval import main; main()"


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(ANSWER) as server:
        yield server


class Evals:
    """A folder with the environment, evaluated by us and by vf-eval."""

    def __init__(self, root: Path, server: ChatServer) -> None:
        self.root = root
        self.workspace = Workspace(Shell(root), [])
        self.url = server.base_url
        home = root / "environments" / "sums_env"
        home.mkdir(parents=True)
        shutil.copy(ENVIRONMENT, home)

    def ours(self, n: int, *more: str) -> pytest.RunResult:
        return self.workspace.run(*self.words(n, *more))

    def begin(self, n: int, *more: str) -> subprocess.Popen[bytes]:
        """Begin the same in a process of its own."""
        words = self.workspace.words(*self.words(n, *more))
        return subprocess.Popen(words, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def words(self, n: int, *more: str) -> list[str]:
        return [
            *("--osmosis-env=sums-env", "--osmosis-model=openai/m", f"--osmosis-api-base-url={self.url}"),
            *(f"--osmosis-num-examples={n}", "--osmosis-rollouts-per-example=2", "--osmosis-save-results", *more),
        ]

    def python(self, code: str, *args: str) -> str:
        paths = f"import sys; sys.path.insert(0, {str(self.root / 'environments/sums_env')!r})\n"
        words = [sys.executable, "-c", paths + code, *args]
        done = subprocess.run(words, cwd=self.root, capture_output=True, text=True, timeout=900, check=False)
        if HAS_OLD_TABLE and "--resume" in args:
            assert done.returncode == 1, done.stderr
            assert "in print_timing" in done.stderr, done.stderr
        else:
            assert done.returncode == 0, done.stderr
        return done.stdout

    def vf_eval(self, n: int, output: str, *more: str) -> Path:
        """Run vf-eval and return the one folder with its files."""
        self.python(
            EVAL,
            *("sums-env", "-m", "openai/m", "-b", self.url, "-k", "NO_KEY", "-n", str(n), "-r", "2", "-s", "-d"),
            *("--disable-env-server", "-o", output, *more),
        )
        (folder,) = (self.root / output / "evals" / "sums-env--openai--m").iterdir()
        return folder


@pytest.fixture
def evals(tmp_path: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> Evals:
    monkeypatch.setenv("NO_KEY", "none")
    return Evals(tmp_path, server)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "results.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n") if line]


def test_verifiers_reads_our_files_and_goes_on_with_them(evals: Evals) -> None:
    result = evals.ours(3)
    assert result.ret == 1, result.stdout.str()
    (folder,) = (evals.root / SAVED).iterdir()
    found = json.loads(evals.python(READ, str(folder), RELEASE).splitlines()[-1])
    assert found["valid"] is True
    assert found["rewards"] == [line["reward"] for line in lines_of(folder)] == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    shown = [6, {"exact": 1.0, "length": 1.0, "num_turns": 1.0}, 4 / 6]
    assert found["shown"] == (shown if RELEASE == "0.1" else None)
    assert found["incomplete"].endswith(folder.name)
    assert {line["info"]["n"] for line in lines_of(folder)} == {0, 1, 2}
    assert evals.vf_eval(4, "outputs", "--resume", str(folder)) == folder
    assert [line["example_id"] for line in lines_of(folder)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_verifiers_goes_on_with_the_files_of_a_run_that_was_killed(evals: Evals, server: ChatServer) -> None:
    with ChatServer(*[ANSWER] * 5, never()) as holding:
        evals.url = holding.base_url
        process = evals.begin(4, "--osmosis-batch-size=1", "--osmosis-no-probe")
        files = evals.root / SAVED
        holding.wait_for(lambda _: [read_json(each)["num_examples"] for each in files.glob("*/metadata.json")] == [2])
        process.kill()
        process.communicate()
    evals.url = server.base_url
    (folder,) = files.iterdir()
    before = len(server.requests)
    assert evals.vf_eval(4, "outputs", "--resume") == folder
    assert [line["example_id"] for line in lines_of(folder)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(server.requests) - before == 4


def test_files_of_vf_eval_have_the_members_of_ours_and_are_taken_over(evals: Evals, server: ChatServer) -> None:
    theirs = evals.vf_eval(3, "vf")
    before = len(server.requests)
    result = evals.ours(4, f"--osmosis-resume-from={theirs}")
    result.stdout.fnmatch_lines([f"*6 of 8 runs are from vf/evals/sums-env--openai--m/{theirs.name}"])
    assert len(server.requests) - before == 2 + 1, "the missing runs and the probe"
    (ours,) = (evals.root / SAVED).iterdir()
    then, now = lines_of(theirs), lines_of(ours)
    if RELEASE == "0.3":  # it has them as they ended
        then.sort(key=lambda line: line["example_id"])
    assert [line["reward"] for line in now[:6]] == [line["reward"] for line in then]
    for old, new in zip(then, now, strict=False):
        assert old.keys() <= new.keys()
        same = old.keys() - {"timing", "tool_defs"}
        assert {key: new[key] for key in same} == {key: old[key] for key in same}
        assert old["timing"].keys() <= new["timing"].keys()
    assert now[6].keys() >= then[0].keys()
    metadata = read_json(theirs / "metadata.json"), read_json(ours / "metadata.json")
    shuffling = {} if RELEASE == "0.1" else {"shuffle": False, "shuffle_seed": None}  # so it takes them if missing
    assert {key: metadata[0].get(key) for key in metadata[0].keys() - metadata[1].keys()} == shuffling
    assert metadata[1]["version_info"]["vf_version"] == metadata[0]["version_info"]["vf_version"]
