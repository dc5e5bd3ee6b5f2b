"""The search itself finds what is planted, and nothing in what is clean."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.hostile.memory import PeakMemory
from tests.hostile.sweep import control_sequences, secrets
from tests.hostile.workspaces import API_KEY, HostileWorkspace
from tests.plugin.workspaces import wait_until


@pytest.mark.parametrize(
    "text",
    ["\x1b[31mred", "a\rb", "bell\a", "\x9b31m", "::error::x", "  ::set-output name=a::b", "a ##[error]", "##vso[task"],
)
def test_a_planted_control_sequence_is_found(text: str) -> None:
    assert list(control_sequences(text.encode()))


@pytest.mark.parametrize("text", ["tests::test_a passed\n", "a\tb\n", "tests/x.toml::row0-run0 PASSED\n", "é ≥\n"])
def test_ordinary_output_is_clean(text: str) -> None:
    assert not list(control_sequences(text.encode()))


def test_a_planted_secret_is_found() -> None:
    assert list(secrets(f"key={API_KEY}".encode(), {"OPENAI_API_KEY": API_KEY}))
    assert not list(secrets(b"key=sk-other", {"OPENAI_API_KEY": API_KEY}))


def test_memory_of_descendants_is_counted() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(80_000_000); input()'])"
    with PeakMemory() as memory, subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        wait_until(lambda: memory.peak_mb > 70, "the grandchild's 80 MB")
        process.communicate()


def test_an_eval_of_a_hostile_workspace_runs(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=2)
    assert hostile.run("--osmosis-config=configs/eval/x.toml", "--junitxml=junit.xml").ret == 0
    names = {artefact.name for artefact in hostile.artefacts()}
    assert {"stdout of command 1", "stderr of command 1", "junit.xml"} <= names
    assert any(name.endswith("results.json") for name in names)
    assert "rewards.py" not in names
