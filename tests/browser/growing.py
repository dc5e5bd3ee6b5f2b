"""An eval run that grows as told, in a process of its own: `python -m tests.browser.growing ROOT`.

A line on its standard input says what to do: "append 12" adds events, "torn" half of one, "whole" the rest of it, and
"finish" ends the eval run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.viewer_runs import RunInProgress, SyntheticRun
from pytest_osmosis.record.journal import encode

NAME = "support-growing"


class Growing:
    """Tells the process what to do, and waits until it has."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, words: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n", words


@contextmanager
def growing(root: Path, *, rows: int = 8, n: int = 2) -> Iterator[Growing]:
    command = [sys.executable, "-m", "tests.browser.growing", str(root), str(rows), str(n)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        yield Growing(process)
    finally:
        process.kill()
        process.communicate()


def main(root: Path, rows: int, n: int) -> None:
    run = RunInProgress(root, SyntheticRun(NAME, rows=rows, n=n))
    print("done", flush=True)
    rest = b""
    for line in sys.stdin:
        word, *number = line.split()
        if word == "append":
            run.append(int(number[0]) if number else None)
        elif word == "torn":
            text = encode(next(run.events))
            rest = text[len(text) // 2 :]
            run.journal.append(text[: len(text) // 2])
        elif word == "whole":
            run.journal.append(rest)
        elif word == "finish":
            run.append()
            run.finish()
        print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
