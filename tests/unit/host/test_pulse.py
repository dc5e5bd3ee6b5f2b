"""The pulse of a host, written and read: beats, and the stacks of a real process that cannot run Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from pytest_osmosis.engine.host_process import PULSE_BYTES, _pulse_file
from pytest_osmosis.engine.pulse import PATIENCE_S, SILENT_S, HostPulse, Silence
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.host.pulse import STACKS_SIGNAL, Pulse, TimeLeft, key_in, read_beat, read_stacks
from pytest_osmosis.record.run_id import ModelTag, RunId

KEY = Key(RunId(3, 1, ModelTag.BASELINE), 2)
STUCK = """
import asyncio, itertools, sys, threading
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.host.pulse import Pulse, TimeLeft, in_frame_of
from pytest_osmosis.record.run_id import ModelTag, RunId

KEY = Key(RunId(3, 1, ModelTag.BASELINE), 2)

async def forever():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    Pulse(int(sys.argv[1])).beat([TimeLeft(KEY, 1.5)])
    sum(itertools.repeat(0))

asyncio.run(in_frame_of(KEY, forever))
"""
FRAME = '  File "ours.py", line 1 in osmosis row3-run1-baseline attempt 2'
DEADLINE_S = 60.0


@pytest.fixture
def file() -> Iterator[IO[bytes]]:
    with _pulse_file() as file:
        yield file


def test_a_beat_tells_the_time_that_is_left(file: IO[bytes]) -> None:
    pulse = Pulse(os.dup(file.fileno()))
    pulse.beat([TimeLeft(KEY, 1.23456), TimeLeft(Key(RunId(0, 0), 1), 0.0)])
    beat = read_beat(os.pread(file.fileno(), PULSE_BYTES, 0))
    assert beat is not None
    assert (beat.number, beat.left_s) == (1, {KEY: 1.235, Key(RunId(0, 0), 1): 0.0})


def test_a_beat_with_many_runs_keeps_those_with_the_least_time(file: IO[bytes]) -> None:
    Pulse(os.dup(file.fileno())).beat(TimeLeft(Key(RunId(row, 0), 1), row) for row in range(9_000))
    beat = read_beat(os.pread(file.fileno(), PULSE_BYTES, 0))
    assert beat is not None
    assert list(beat.left_s.values()) == list(range(500))


@pytest.mark.parametrize("data", [b"", b"\0" * 9, b"[1", b"[1, 2]\n", b"[1, [[1]]]\n", b"{}\n", b"[[], []]"])
def test_half_a_beat_is_none(data: bytes) -> None:
    beat = read_beat(data)
    assert beat is None or not beat.left_s


def test_stacks_are_read_with_the_main_thread_first() -> None:
    text = (
        'Thread 0x1 (most recent call first):\n  File "/a b.py", line 3 in wait\n\n'
        'Current thread 0x2 (most recent call first):\n  File "x.py", line 2 in inner\n'
        '  File "ours.py", line 1 in osmosis row3-run1-baseline attempt 2\n  ...\n'
    )
    main, other = read_stacks(text)
    assert [frame.name for frame in main] == ["osmosis row3-run1-baseline attempt 2", "inner"]
    assert [(frame.file, frame.line) for frame in other] == [("/a b.py", 3)]
    assert (key_in(main), key_in(other), read_stacks("")) == (KEY, None, [])


@pytest.mark.parametrize("answers", [True, False], ids=["answers", "stopped"])
def test_a_host_gets_its_time_to_answer_although_it_is_asked_late(file: IO[bytes], answers: bool) -> None:
    """The engine was held up: the host has been silent for long when it looks again."""
    pulse, asked = HostPulse(file), []
    Pulse(os.dup(file.fileno())).beat([TimeLeft(KEY, 1.5)])
    assert pulse.silence(100.0, lambda: asked.append(100.0)) is None
    assert pulse.silence(200.0, lambda: asked.append(200.0)) is None
    assert asked == [200.0]
    if answers:
        os.write(file.fileno(), f"Current thread 0x2 (most recent call first):\n{FRAME}\n".encode())
        silence = pulse.silence(200.5, lambda: None)
        assert silence is not None
        assert silence.key == KEY
    else:
        assert pulse.silence(199.5 + PATIENCE_S, lambda: None) is None
        silence = pulse.silence(200.0 + PATIENCE_S, lambda: None)
        assert silence is not None
        assert silence.key is None


def test_a_host_is_asked_until_it_answers_and_late_answers_count_for_no_later_silence(file: IO[bytes]) -> None:
    """It was stopped, and answers after it has beaten again."""
    pulse, beating, asked = HostPulse(file), Pulse(os.dup(file.fileno())), list[float]()

    def looked(now: float) -> Silence | None:
        return pulse.silence(now, lambda: asked.append(now))

    def answers(frame: str) -> None:
        os.write(file.fileno(), f"Current thread 0x2 (most recent call first):\n{frame}\n".encode())

    beating.beat([])
    assert [looked(now) for now in (100.0, 200.0, 201.0)] == [None] * 3
    beating.beat([])
    assert looked(202.0) is None
    answers(FRAME)
    answers(FRAME)
    assert looked(300.0) is None
    answers(FRAME.replace("row3", "row4"))
    late, again = looked(301.0), looked(302.0)
    assert late is not None
    assert again is not None
    assert late.key == again.key == Key(RunId(4, 1, ModelTag.BASELINE), 2)
    assert asked == [200.0, 201.0, 300.0]


def test_a_process_in_c_is_silent_and_says_where_it_is(file: IO[bytes], tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK, encoding="utf-8")
    words = [sys.executable, str(tmp_path / "stuck.py"), str(file.fileno())]
    pulse, silence, end = HostPulse(file), None, time.monotonic() + DEADLINE_S
    with subprocess.Popen(words, pass_fds=[file.fileno()]) as process:
        try:
            while silence is None and time.monotonic() < end:
                silence = pulse.silence(time.monotonic(), lambda: os.kill(process.pid, STACKS_SIGNAL))
                time.sleep(0.05)
        finally:
            process.kill()
    assert isinstance(silence, Silence)
    assert (silence.key, silence.left_s) == (KEY, {KEY: 1.5})
    assert silence.held_s >= SILENT_S - 1.5
    assert 'stuck.py", line 12, in forever\n    sum(itertools' in silence.stack
    assert "pytest_osmosis" not in silence.stack


@pytest.mark.parametrize("key", [None, Key(RunId(1, 2, ModelTag.BASELINE), 3)])
def test_a_silence_is_the_same_after_its_way_as_json(key: Key | None) -> None:
    left_s = {Key(RunId(1, 2, ModelTag.BASELINE), 3): 1.5, Key(RunId(1, 2), 3): -0.25}
    silence = Silence(2.5, key, left_s, 'File "é.py", line 1\n')
    assert Silence.from_json(json.loads(json.dumps(silence.to_json()))) == silence


def test_a_silence_of_a_run_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="'row1' is not the name of a run"):
        Silence.from_json({"held_s": 1.0, "key": ["row1", 1], "left_s": [], "stack": ""})
