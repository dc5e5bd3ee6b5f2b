"""Two copies of a workspace, one whose commands run plain and one under xdist, and all that can be seen of them.

A copy shows one text: for each command its exit status, its screen, every file that it wrote or removed, and what it
asked the server. Times, ids, ports and workers are masked, and what ends in no order of its own is sorted, so two
copies that behave alike show the same text.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec import Struct, structs

from pytest_osmosis.record.journal import replay
from tests.journals import fold
from tests.plugin.reports import Report
from tests.plugin.workspaces import Session, Shell, Workspace
from tests.servers import Behaviour, ChatServer

MASKS = (
    (re.compile(r"127\.0\.0\.1:\d+"), "SERVER"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00| UTC)?"), "MOMENT"),
    (re.compile(r"\b\d[\d,]*(\.\d+)? ?(ms|s|min|h)(?![\w-])( \d+ (s|min)\b)?( \(\d+:\d\d:\d\d\))?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? [kM]B\b"), "SIZE"),
    (re.compile(r" -n2\b"), ""),
    (re.compile(r"\b0x[0-9a-f]+"), "ADDRESS"),
    (re.compile(r"^\S+:\d+: KeyboardInterrupt$", re.MULTILINE), "PLACE: KeyboardInterrupt"),
)
"""The parts of any text that differ from one session to the next."""
TIMES = re.compile(r"(_ms|_s|_at|^at|^ms|^time|^duration|^created|^timestamp|^start|^stop|^pid|^seconds|^call$|salt)$")
"""Keys whose numbers and moments are masked."""
SALTED = ("env", "model.headers")
"""Tables that hold digests, each with the salt of its eval run, in place of values."""
OF_XDIST = re.compile(
    r"created: \d|bringing up nodes|initialized: |ready: |\d+ workers? \[|scheduling tests via |\[gw\d+\] \w+ -- |"
    r"collecting |collected |run-last-failure: |osmosis: .*\d+/\d+.*, (starting|\d+ in flight)| *\[ *\d+%\]$"
)
"""Lines about the collection, workers and progress: plain pytest and xdist have their own, or they depend on time."""
WORKER = re.compile(r"\[gw\d+\] \w+ -- Python .*\s*")
TITLE = re.compile(r"([=_!-])\1{2,} (.+?) \1{3,}$")
PROGRESS = re.compile(r"(?:\S+\.(?:py|toml|jsonl) )?([.FEsxX]*) *(?:\[ *\d+%\])?$")
VERBOSE = re.compile(r"(?:\[gw\d+\] \[ *\d+%\] ([A-Z]+) (\S+)|(\S+) ([A-Z]+)(?: \(.*\))? *(?:\[ *\d+%\])?)$")
STARTED = re.compile(r"\S*\w(::\S+|\.\w+) *$")
NOT_COLLECTED = re.compile(r"(ERROR \S+\.py) - .*")
DESELECTED = re.compile(r", \d+ deselected|^\d+ deselected, ")
ONLY_DESELECTED = re.compile(r"^\d+ deselected in")
BLOCKS = ("ERRORS", "FAILURES", "PASSES", "XFAILURES", "XPASSES")
AFTER_BLOCKS = re.compile(r"-{3,} (?!Captured )")
NOT_COMPARED = ("__pycache__", ".git", "README.md", "CACHEDIR.TAG", ".gitignore", "nodeids")
"""Parts of paths: compiled files, and those of pytest's cache that xdist does without."""


class Copy(Workspace):
    """A workspace and a server. `shown` is what can be seen of its commands so far; plain ones run in this process."""

    def __init__(self, root: Path, arguments: list[str], server: ChatServer) -> None:
        root.mkdir()
        super().__init__(Shell(root), arguments)
        self.server = server
        self.shown: list[str] = []
        self._names: dict[str, str] = {}
        self._asked = len(server.requests)

    def command(self, status: int, *args: str, stdin: str = "", folder: str = ".", **environment: str) -> None:
        """Run `pytest <args>` in a folder, and note what can be seen of it. A plain one must exit with `status`."""
        before = self._files()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"COLUMNS": "200", **environment}.items():
                patch.setenv(name, value)
            patch.chdir(self.root / folder)
            done = self.run(*args, stdin=stdin.encode())
        assert self.distributed or done.ret == status, f"{done.stdout}\n{done.stderr}"
        self._note(args, done.ret, "\n".join(done.outlines), "\n".join(done.errlines), before)

    def background(self, status: int, *args: str, until: Callable[[Session], object]) -> None:
        """Run the same command until `until` has ended it, for example with Ctrl-C."""
        before = self._files()
        session = self.start(*args)
        until(session)
        ended = session.wait()
        assert self.distributed or ended == status, session.output
        self._note(args, ended, session.output, "", before)

    def _note(self, args: tuple[str, ...], status: int, out: str, err: str, before: Mapping[str, bytes]) -> None:
        self.shown += [f"$ pytest {' '.join(args)}", f"exit status {status}"]
        self.shown += [*screen(out), *(f"stderr: {line}" for line in err.splitlines())]
        after = self._files()
        self._name_runs()
        for path in sorted({*before, *after}, key=self._named):
            if path not in after:
                self.shown.append(f"removed: {path}")
            elif before.get(path) != after[path]:
                self.shown += [f"written: {path}", *(f"    {line}" for line in self.content(self.root / path))]
        bodies = sorted(json.dumps(body, sort_keys=True) for body in self.server.bodies[self._asked :])
        self._asked += len(bodies)
        self.shown += [f"{len(bodies)} requests", *(f"    {body}" for body in bodies)]

    def content(self, path: Path) -> list[str]:
        return content(path)

    def _files(self) -> dict[str, bytes]:
        paths = (path for path in self.root.rglob("*") if path.is_file())
        relative = {path: path.relative_to(self.root) for path in paths}
        return {str(to): path.read_bytes() for path, to in relative.items() if not set(NOT_COMPARED) & {*to.parts}}

    def name(self, commit: str, name: str) -> None:
        """Name a commit, which has another SHA in each copy."""
        self._names |= {commit: name, commit[:7]: name}

    def _name_runs(self) -> None:
        """Name new run directories by their evals and a number: their own names are random."""
        found = {path.name for path in self.root.rglob(".osmosis/runs/*") if path.is_dir()} - self._names.keys()
        for run in sorted(found):
            of = re.sub(r"-\d{8}T\d{6}Z-\w+$", "", run)
            number = sum(name.startswith(f"{of}-RUN") for name in self._names.values()) + 1
            self._names[run] = f"{of}-RUN{number}"

    def _named(self, text: str) -> str:
        for run, name in self._names.items():
            text = text.replace(run, name)
        return text

    def text(self) -> list[str]:
        text = self._named("\n".join(self.shown))
        for mask, word in MASKS:
            text = mask.sub(word, text)
        return text.splitlines()


def differences(story: Callable[[Copy], object], folder: Path, *script: Behaviour) -> str:
    """Tell a story in a plain copy and in one under xdist; return what differs between them, "" if nothing does."""
    texts: list[list[str]] = []
    with ChatServer(*script) as server:
        for name, arguments in (("plain", []), ("xdist", ["-n2"])):
            copy = Copy(folder / "copy", arguments, server)
            story(copy)
            texts.append(copy.text())
            copy.root.rename(folder / name)  # what is a digest of the folder or of a port is the same in both copies
    return "\n".join(difflib.unified_diff(texts[0], texts[1], "plain", "-n2", lineterm="", n=4))


# -- the screen -------------------------------------------------------------------------------------------


def screen(out: str) -> Iterator[str]:
    """Return the lines on a screen section by section; those of tests, which end in any order, sorted."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in out.splitlines():
        found = TITLE.match(line)
        if found and found[1] == "=":
            sections.append((found[2], []))
        elif not OF_XDIST.match(line):
            sections[-1][1].append(re.sub(r"(?<=\S) {2,}", "  ", line).rstrip())
    for title, lines in sections:
        yield f"=== {ONLY_DESELECTED.sub('no tests ran in', DESELECTED.sub('', title))}"
        if title in ("", "test session starts"):
            yield from _session(lines)
        elif title in BLOCKS:
            end = next((at for at, line in enumerate(lines) if AFTER_BLOCKS.match(line)), len(lines))
            yield from [*sorted(_blocks(lines[:end])), *lines[end:]]
        elif title == "short test summary info":
            yield from _short_summary(lines)
        else:
            yield from lines


def _session(lines: list[str]) -> Iterator[str]:
    letters, rest = "", []
    for line in lines:
        if progress := PROGRESS.match(line):
            letters += progress[1]
        elif verbose := VERBOSE.match(line):
            rest.append(" ".join((verbose[1] or verbose[4], verbose[2] or verbose[3])))
        elif not STARTED.match(line):
            rest.append(line)
    yield from [*sorted(filter(None, rest)), "".join(sorted(letters))]


def _blocks(lines: list[str]) -> Iterator[str]:
    block: list[str] = []
    for line in lines:
        title = TITLE.match(line)
        if title and title[1] == "_" and block:
            yield "\n".join(block)
            block = []
        block.append(f"___ {title[2]} ___" if title and title[1] == "_" else line)
    yield "\n".join(block)


def _short_summary(lines: list[str]) -> Iterator[str]:
    end = next((number for number, line in enumerate(lines) if TITLE.match(line)), len(lines))
    yield from sorted(NOT_COLLECTED.sub(r"\1", line) for line in lines[:end])
    yield from lines[end:]


# -- files ------------------------------------------------------------------------------------------------


def content(path: Path) -> list[str]:
    if path.suffix == ".xml":
        return junit(path)
    if path.suffix == ".html":
        return html(path)
    if path.name == "journal.jsonl":
        return [f"{run}: {masked(record)}" for run, record in sorted(fold(replay(path)).records.items())]
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return sorted(json.dumps(masked(json.loads(line)), sort_keys=True) for line in text.splitlines())
    if path.suffix == ".json" or path.parent.name == "cache":
        return json_lines(json.loads(text))
    return text.splitlines()


def json_lines(value: Any) -> list[str]:
    if isinstance(value, dict) and "exitcode" in value:
        value = _json_report(value)
    return json.dumps(masked(value), indent=1, sort_keys=True).splitlines()


def _json_report(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report of pytest-json-report with sorted tests, without what xdist knows only in its workers."""
    tests = sorted(report["tests"], key=lambda test: str(test["nodeid"]))
    for test in tests:
        for phase in ("setup", "call", "teardown"):
            if text := WORKER.sub("", test.get(phase, {}).pop("longrepr", "")):
                test[phase]["longrepr"] = text
    return {"exitcode": report["exitcode"], "summary": report["summary"], "tests": tests}


def masked(value: Any, key: str = "") -> Any:
    """Return a value without times, with sorted keys: scores are in the order in which they came. 0 stays 0."""
    if isinstance(value, Struct):
        value = structs.asdict(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        of_all = "salt" if key in SALTED else key if key.endswith("_ms") else ""
        return {str(name): masked(value[name], of_all or str(name)) for name in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [masked(each, key) for each in value]
    return "TIME" if TIMES.search(key) and value else value


def junit(path: Path) -> list[str]:
    lines = []
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        lines.append(f"suite {masked({**suite.attrib, 'hostname': ''})}")
        cases = []
        for case in suite.iter("testcase"):
            inner = [_element(each) for each in case.iter() if each is not case]
            cases.append("\n".join([f"case {masked(case.attrib)}", *inner]))
        lines += "\n".join(sorted(cases)).splitlines()
    return lines


def _element(element: ElementTree.Element) -> str:
    attributes = dict(element.attrib)
    if "value" in attributes:
        attributes["value"] = masked(attributes["value"], attributes["name"])
    return f"  {element.tag} {attributes} {WORKER.sub('', element.text or '').strip()}"


def html(path: Path) -> list[str]:
    report = Report(path)
    lines = [report.static]
    for name in report.runs:
        run = report.run(name)
        lines += json_lines(run)
        lines += [
            json.dumps(masked(report.conversation(run, at)), sort_keys=True) for at in range(len(run["runs"]["line"]))
        ]
    return lines
