"""Record what commands show and leave, and compare two recordings.

    python -m tests.corpus record before
    python -m tests.corpus record after --code ../later --runs before
    diff -rU2 -x kept -F '^\\$ ' before after
    python -m tests.corpus check

`--code` is the folder that holds the package `pytest_osmosis` of a version, such as a worktree of a commit; without it
the package in this one is recorded. `--runs` names a recording whose eval runs are read, in place of the own ones.
`check` records the package with ten planted changes, one after the other, and fails if one is not noticed.
Recordings of one machine are compared: start both from the worktree of the earlier version, whose cases they share.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.corpus import planted, recording


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.corpus", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="record a version")
    record.add_argument("folder", type=Path)
    record.add_argument("--code", type=Path, default=planted.REPOSITORY, help="the folder with the package")
    record.add_argument("--runs", type=Path, help="read the eval runs of this recording")
    record.add_argument("-k", dest="words", action="append", default=[], help="only cases with this in their name")
    record.add_argument("--mode", dest="modes", action="append", choices=recording.MODES, help="default: all")
    check = commands.add_parser("check", help="notice ten planted changes")
    check.add_argument("folder", type=Path, nargs="?", default=planted.REPOSITORY / "dist/corpus-check")
    for each in (record, check):
        each.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.command == "check":
        return planted.check(folder, given.jobs)
    recording.record(
        folder, given.code.resolve(), given.words, given.modes or list(recording.MODES), given.jobs, given.runs
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
