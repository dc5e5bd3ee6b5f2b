"""Fixtures of the hostile corpus: a workspace under attack, searched after each test."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path

import pytest

from benchmarks.memory import PeakMemory, descendants, proportional_mb
from tests.hostile.fuzzing import SECONDS, Fuzzer
from tests.hostile.sweep import control_characters, control_sequences, secrets
from tests.hostile.workspaces import Artefact, HostileWorkspace
from tests.plugin.conftest import shell
from tests.plugin.workspaces import Shell

__all__ = ["shell"]
MEMORY_MB = 600
"""All processes of one test that is `measured`, together."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave the corpus to `make test-all`, but for tests of the search itself."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and "hostile" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def _obeyed(artefact: Artefact) -> Iterable[str]:
    """Return what a terminal, a runner of CI or a reader of reports would obey or choke on."""
    if artefact.printed:
        return control_sequences(artefact.content)
    if artefact.name.endswith((".xml", ".md")):
        return control_characters(artefact.content)
    return ()


def _started(before: Set[int]) -> Iterator[int]:
    """Yield the processes that this test started. A child that was only forked yet has the memory of this process.

    Those of `before` belong to others, such as a cluster that lasts as long as the session.
    """
    own = _command("self")
    for child in {*descendants(os.getpid())} - before:
        if _command(child) != own or _parent(child) != os.getpid():
            yield child


def _command(process: int | str) -> bytes:
    return _proc(f"{process}/cmdline")


def _parent(process: int) -> int:
    """Return the process that started another one, 0 if that has ended."""
    fields = _proc(f"{process}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _proc(name: str) -> bytes:
    try:
        return Path("/proc", name).read_bytes()
    except OSError:
        return b""


@pytest.fixture(
    params=[
        pytest.param(Fuzzer(), id="few inputs", marks=pytest.mark.slow),
        pytest.param(Fuzzer(SECONDS), id="many inputs", marks=pytest.mark.nightly),
    ]
)
def fuzz(request: pytest.FixtureRequest) -> Fuzzer:
    fuzzer: Fuzzer = request.param
    return fuzzer


@pytest.fixture
def measured() -> Iterator[None]:
    """Fail a test whose processes take too much memory together."""
    before = {*descendants(os.getpid())}
    with PeakMemory(lambda: _started(before), proportional_mb) as memory:
        yield
    assert memory.peak_mb < MEMORY_MB, f"the processes of this test used {memory.peak_mb:,.0f} MB together"


@pytest.fixture
def hostile(
    request: pytest.FixtureRequest,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Iterator[HostileWorkspace]:
    """A workspace whose environment holds secrets. No secret, and no control sequence, may leave it.

    Its sessions run plain, or under xdist if a mark says so. Processes that crash write core files where the system
    allows it, as machines of CI do.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    workspace = HostileWorkspace(shell, getattr(request, "param", []), monkeypatch, capfdbinary)
    yield workspace
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    found = [
        f"{artefact.name}: {problem}"
        for artefact in workspace.artefacts()
        for problem in [*secrets(artefact.content, workspace.secrets), *_obeyed(artefact)]
    ]
    assert not found, "\n".join(found)
