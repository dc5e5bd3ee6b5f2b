"""Record what commands show and leave, and compare two recordings.

    python -m tests.corpus record before
    python -m tests.corpus record after --code ../later --runs before
    python -m tests.corpus compare before after
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

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.corpus", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="record a version")
    record.add_argument("folder", type=Path)
    record.add_argument("--code", type=Path, default=REPOSITORY, help="the folder with the package")
    record.add_argument("--runs", type=Path, help="read the eval runs of this recording")
    compare = commands.add_parser("compare", help="show each difference between two recordings")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    check = commands.add_parser("check", help="notice ten planted changes")
    check.add_argument("folder", type=Path, nargs="?", default=REPOSITORY / "dist/corpus-check")
    for each in (record, compare, check):
        each.add_argument("-k", dest="words", action="append", default=[], help="only cases with this in their name")
        each.add_argument("--mode", dest="modes", action="append", choices=recording.MODES, help="default: all")
        each.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    modes = given.modes or list(recording.MODES)
    if given.command == "record":
        recording.record(given.folder.resolve(), given.code.resolve(), given.runs, given.words, modes, given.jobs)
        return 0
    if given.command == "check":
        return planted.check(given.folder.resolve(), given.words, given.jobs)
    differences = recording.compare(given.before, given.after, given.words, modes)
    print("\n".join(differences) or "no differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
