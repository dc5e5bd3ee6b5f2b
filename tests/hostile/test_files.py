"""Files that are none, or cannot be read, that were damaged, or that a session writes: each is named at once.

No session waits for a file, replaces one that it reads or that is a stranger's, or shows a traceback.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_osmosis.files import reading
from tests.hostile.workspaces import CONFIG, PLAIN_AND_XDIST, HostileWorkspace
from tests.plugin.workspaces import PYTEST, read_json

VALID_SECRETS = "--osmosis-secrets-file takes a file with lines NAME=VALUE, or - to read them from standard input"


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is a pipe, not a file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
}
"""tests/unit/files has others."""


def test_what_is_no_file_is_named_as_config_and_elsewhere_and_as_a_file_of_cases(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=1)
    for name, (make, _) in KINDS.items():
        make(hostile.root / f"{name}.toml")
    result = hostile.run("--osmosis-config=pipe.toml")
    assert result.ret == 4
    assert f"--osmosis-config=pipe.toml: {KINDS['pipe'][1]}" in result.stderr.str()

    result = hostile.run("pipe.toml", "device.toml", CONFIG)

    assert result.ret == 4
    for name, (_, fault) in KINDS.items():
        assert f"{name}.toml: {fault}" in result.stderr.str()

    hostile.write(
        "fns.py",
        "from pytest_osmosis import osmosis_reward\n\n"
        "@osmosis_reward\n"
        "def f(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:\n    return 1.0\n",
    )
    os.mkfifo(hostile.root / "fns.cases.toml")

    cases = hostile.run("fns.py")

    assert cases.ret != 0
    assert "fns.cases.toml: is a pipe, not a file" in cases.stdout.str() + cases.stderr.str()


def test_what_is_no_file_is_named_as_secrets_file_baseline_and_stored_run(
    hostile: HostileWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PIPE_PATIENCE_S", 0.0)
    hostile.eval(rows=1, secrets={"required": ["TOKEN"]})
    for name, (make, fault) in KINDS.items():
        of_secrets = "is an empty pipe, or nothing writes to it" if name == "pipe" else fault
        base, secrets = f"{name}-base", f"{name}-secrets"
        for path in (base, secrets):
            make(hostile.root / path)

        result = hostile.run(CONFIG, f"--osmosis-secrets-file={secrets}", f"--osmosis-set=baseline.results={base}")
        assert result.ret == 4
        assert f"{secrets}: {of_secrets}; {VALID_SECRETS}" in result.stderr.str()
        assert f"[baseline] results: {base}: {fault}" in result.stderr.str()

        result = hostile.run(f"--osmosis-from={base}")
        assert result.ret == 4
        assert f"--osmosis-from: {base}: {fault}" in result.stderr.str()


def test_a_stored_run_with_pipes_in_place_of_its_files_is_refused(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=1)
    assert hostile.run(CONFIG).ret == 0
    run = hostile.run_dirs()[0]
    for name in ("results.json", "journal.jsonl"):
        kept = (run / name).read_bytes()
        (run / name).unlink()
        os.mkfifo(run / name)
        result = hostile.run("--osmosis-from=latest")
        assert result.ret == 4
        assert f"{name}: is a pipe, not a file" in result.stderr.str()
        assert hostile.run(CONFIG).ret == 0, "an earlier run that cannot be read does not matter"
        shutil.rmtree(hostile.run_dirs()[-1])
        (run / name).unlink()
        (run / name).write_bytes(kept)


def test_secrets_from_standard_input_that_cannot_be_read_are_refused(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=1, secrets={"required": ["TOKEN"]})
    command = f"{shlex.join(PYTEST)} {CONFIG} --osmosis-secrets-file=- "
    for redirected, fault in (("<&-", "is closed"), ("</dev/zero", "holds more than 1,000,000 bytes")):
        result = hostile.command("sh", "-c", f"exec {command}{redirected}")
        assert result.ret == 4
        assert f"stdin: {fault}" in result.stderr.str()
    result = hostile.run(CONFIG, "--osmosis-secrets-file=-", stdin=b"TOKEN=\xff\xfe")
    assert result.ret == 4
    assert "stdin:1: must be UTF-8 text, got the byte 0xff" in result.stderr.str()


FOLDERS = ("new\nline", "@group", "-x", "~", "a]b\tx {name} é日 100% 'q\" $HOME #* %s back\\slash")
NAMES = ("x[1]", "x::y", r"a\x1bcb", r"a\u202eb", r"a\rb", r"a\u200bb")
"""Names of evals, as they are shown."""


@PLAIN_AND_XDIST
def test_evals_in_folders_with_any_name_run(hostile: HostileWorkspace) -> None:
    for folder in FOLDERS:
        hostile.eval(rows=2, folder=folder)
    ids = [f"./{folder}/configs/eval/x.toml::x[row{row}-run0]" for folder in FOLDERS for row in range(2)]

    result = hostile.run(*(f"--osmosis-config={folder}/configs/eval/x.toml" for folder in FOLDERS))

    result.assert_outcomes(passed=len(ids))
    assert [folder for folder in FOLDERS if not hostile.run_dirs(folder=folder)] == []
    inline = [] if hostile.distributed else ["--osmosis-inline"]
    hostile.run(*ids, *inline).assert_outcomes(passed=len(ids))


def test_a_path_that_pytest_takes_for_the_name_of_a_test_or_a_terminal_obeys_is_refused(
    hostile: HostileWorkspace,
) -> None:
    names = [name.encode().decode("unicode_escape") for name in NAMES]
    for name in names:
        hostile.eval(name)

    result = hostile.run(*(f"--osmosis-config=configs/eval/{name}.toml" for name in names))

    assert result.ret == 4
    text = 'its path names its tests, and holds "[", "::", or characters that control terminals; rename it'
    assert [line for line in result.errlines if line] == [f"ERROR: configs/eval/{name}.toml: {text}" for name in NAMES]


def test_what_the_session_reads_is_never_overwritten(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=1, baseline={"results": "base.json"}, secrets={"required": ["TOKEN"]})
    hostile.write("pyproject.toml", "")
    hostile.write("secrets.env", "TOKEN=hunter2-hunter2\n")
    assert hostile.run(CONFIG, "--osmosis-update-baseline", "--osmosis-secrets-file=secrets.env").ret == 0
    inputs = {
        "data/x.jsonl": "the dataset of x (configs/eval/x.toml)",
        "configs/eval/x.toml": "the config of an eval",
        "rewards.py": "code",
        "secrets.env": "the secrets file",
        "pytest.ini": "pytest's configuration",
        "pyproject.toml": "the settings of the workspace",
        "base.json": "the baseline of x (configs/eval/x.toml)",
    }
    before = {path: (hostile.root / path).read_bytes() for path in inputs}
    for path, name in inputs.items():
        written = {"output": "results file", "markdown": "Markdown page", "html": "HTML report"}
        words = (f"--osmosis-{option}={path}" for option in written)
        secrets = "--osmosis-secrets-file=secrets.env"
        result = hostile.run(CONFIG, *words, "--osmosis-overwrite", secrets, "--osmosis-dry-run", exits=4)
        for file in written.values():
            assert f"{file} {path}: is {name}, which" in result.stderr.str()
    assert before == {path: (hostile.root / path).read_bytes() for path in inputs}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema_version": 0, "status": "", "config": {}, "summary": {}, "provenance": {}}', []),
        ("{ damaged", ["--osmosis-overwrite"]),
    ],
)
def test_a_baseline_that_cannot_be_read_is_replaced_as_the_message_says(
    hostile: HostileWorkspace, text: str, words: list[str]
) -> None:
    hostile.eval(rows=1, baseline={"results": "base.json"})
    hostile.write("base.json", text)

    result = hostile.run(CONFIG)
    assert result.ret == 4
    assert "write it anew with --osmosis-update-baseline" in result.stderr.str()
    for word in words:
        result = hostile.run(CONFIG, "--osmosis-update-baseline")
        assert result.ret == 4
        fix = f"name another file, or replace it with {word}"
        assert f"baseline base.json: exists, and pytest-osmosis did not write it; {fix}" in result.stderr.str()

    assert hostile.run(CONFIG, "--osmosis-update-baseline", *words).ret == 0
    assert read_json(hostile.root / "base.json")["config"]["name"] == "x"


DAMAGES: dict[str, bytes] = {
    "empty": b"",
    "another version": b'{"schema_version": 99}',
    "not text": b"\xff\xfe\x00\x01",
    "deep": b"[" * 100_000,
}
"""Contents of a manifest, of results, or of a journal: test_fuzz_read_back.py has others."""


def command(hostile: HostileWorkspace, *words: str) -> pytest.RunResult:
    result = hostile.cli(*words)
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    return result


def test_damaged_results_and_manifests_are_said_once_and_ignored(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=2)
    name = "--osmosis-config=configs/eval/x.toml"
    assert hostile.run(name).ret == 0
    digest = json.loads((hostile.run_dirs()[0] / "results.json").read_bytes())["provenance"]["plan_digest"]
    for number, (_, content) in enumerate(DAMAGES.items()):
        run = f".osmosis/runs/damaged-{number}"
        hostile.write_bytes(f"{run}/manifest.json", content)
        hostile.write_bytes(f"{run}/journal.jsonl", content)
        hostile.write_bytes(f"{run}/results.json", content + f'\n"{digest}"\n'.encode())

    result = hostile.run(name)

    assert result.ret == 0
    assert result.stdout.str().count("an earlier run is ignored: ") == 1
    assert "Traceback" not in result.stdout.str()
    assert command(hostile, "runs").stdout.str().count("unreadable") == len(DAMAGES)
    for number in range(len(DAMAGES)):
        assert command(hostile, "show", f"damaged-{number}", "row0-run0").ret == 1
        assert command(hostile, "show", f"damaged-{number}", "--json").ret == 1


def test_damaged_entries_of_pytests_cache_are_ignored(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=2)
    failed, ids = (
        b'{"configs/eval/x.toml::x[row0-run0]": 3, "": null, "x": []}',
        b'["configs/eval/x.toml::x[row0-run0]", ""]',
    )
    for entries in ((failed, ids), (b'{"configs/eval', b'{"configs/eval/x.toml::x[row0-run0]": 1}')):
        for name, entry in zip(("lastfailed", "nodeids"), entries, strict=True):
            hostile.write_bytes(f".pytest_cache/v/cache/{name}", entry)

        result = hostile.run("--osmosis-config=configs/eval/x.toml")

        assert result.ret == 0
        assert "Traceback" not in result.stdout.str() + result.stderr.str()
