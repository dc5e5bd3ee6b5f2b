"""The hosts' log: bounded whatever user code writes to its raw descriptors, and still there when a host breaks down."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.engine import host_log
from pytest_osmosis.engine.host_log import HEAD_BYTES, MOST_BYTES, TAIL_BYTES, HostLog
from tests.engine.evaluating import Workspace, evaluated
from tests.servers import ChatServer


def test_of_a_large_log_head_and_tail_are_kept_and_the_gap_is_named(tmp_path: Path) -> None:
    path = tmp_path / "host.log"
    kept = HostLog(path)
    kept.bound()
    assert not path.exists()
    whole = b""
    for number in range(3):
        more = b"".join(b"%d %07d\n" % (number, line) for line in range(1_000_000))
        whole += more
        with path.open("ab") as file:
            file.write(more[:1_000_000])
            kept.bound()
            file.write(more[1_000_000:])
        kept.bound()
        content = path.read_bytes()
        gap = f"\n[... {len(whole) - HEAD_BYTES - TAIL_BYTES:,} bytes left out ...]\n".encode()
        assert content == whole[:HEAD_BYTES] + gap + whole[-TAIL_BYTES:]


def test_a_log_that_is_not_too_large_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "host.log"
    path.write_bytes(b"x" * MOST_BYTES)
    HostLog(path).bound()
    assert path.stat().st_size == MOST_BYTES


def test_what_floods_the_raw_descriptors_is_bounded(workspace: Workspace, server: ChatServer) -> None:
    """By user code itself, and by a process that it started and left behind."""
    workspace.agent(
        """
        async def rollout(ctx):
            os.write(1, b"the begin\\n")
            for _ in range(200):
                os.write(2, b"x" * 65_536)
            subprocess.run(["head", "-c", "9000000", "/dev/zero"])
            await ctx.chat(ctx.prompt)
            os.write(2, b"the end\\n")
        """
    )
    live = evaluated(workspace.config(server, data={"rows": "0"}))
    assert live.kinds() == ["passed"]
    text = live.run_files()["host.log"]
    assert text.startswith("the begin\n")
    assert text.endswith("the end\n")
    assert "bytes left out ...]" in text
    assert len(text) < HEAD_BYTES + TAIL_BYTES + 1000


def test_a_host_that_breaks_down_after_its_log_was_cut_still_has_its_last_words(
    workspace: Workspace, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quarantine begins far behind the end of what is left of the log."""
    monkeypatch.setattr(host_log, "MOST_BYTES", 100_000)
    monkeypatch.setattr(host_log, "HEAD_BYTES", 1_000)
    monkeypatch.setattr(host_log, "TAIL_BYTES", 9_000)
    workspace.agent(
        """
        import ctypes

        async def rollout(ctx):
            await ctx.chat(ctx.prompt)
            if os.fstat(2).st_size < 80_000:
                os.write(2, b"x" * 90_000)
            else:
                os.write(2, b"x" * 20_000)
                until = time.monotonic() + 30
                while os.fstat(2).st_size > 80_000 and time.monotonic() < until:
                    await asyncio.sleep(0.01)
            ctypes.string_at(0)
        """
    )
    live = evaluated(workspace.config(server, data={"rows": "0"}))
    assert live.record(0).boundary == "agent"
    assert "Fatal Python error: Segmentation fault" in live.outcome(0).text
