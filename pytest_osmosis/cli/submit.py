"""`pytest-osmosis submit`: shows the plan of an eval, asks, and leaves a pytest behind that runs it.

That process has a session of its own, ignores hangups, and writes to a log in the run directory. It inherits the lock
of the run directory, so the eval run is pending from the moment of its submission, and failed once it has died.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pytest_osmosis.cli.logs import LogTail
from pytest_osmosis.cli.output import CommandOutput, add_output_options
from pytest_osmosis.config import is_training_config, read_entries
from pytest_osmosis.config.secrets import read_secrets_file
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.evals.run_directory import ignore_in_git
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import FileFault, fault_of, is_pipe
from pytest_osmosis.record.lifecycle import Lifecycle, Status, lifecycle_of
from pytest_osmosis.record.run_directory import RUNS, Holder, RunDirectory, RunLock
from pytest_osmosis.record.submission import (
    LOCK_OPTION,
    PLAN_OPTION,
    PLUGIN,
    SECRETS_OPTION,
    SubmissionNote,
    SubmissionPlan,
)
from pytest_osmosis.report.style import bad, bold, dim, joined
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import money, plural

DESCRIPTION = """\
Run an eval in the background: show its plan, ask, and start pytest so that it
survives this terminal. Options of pytest that begin with --osmosis- may stand
anywhere, others after --.
"""
EXAMPLES = """\
examples:
  pytest-osmosis submit configs/eval/sums.toml
  pytest-osmosis submit configs/eval/sums.toml --yes --osmosis-n=4 --osmosis-limit=all
  pytest-osmosis submit configs/eval/sums.toml --name nightly -- -n 2 --junitxml=sums.xml
"""
_PREFIX = "--osmosis-"
_ARGUMENT = "--pytest-argument"
"""The option that hands an argument for pytest through this parser, which would not know it."""
SCHEMA_VERSION = 1
STARTS_S = 10.0
"""The longest time that `submit` waits for the code to load."""
POLL_S = 0.1
FAILED_LINES = 20
"""The last lines of the log of an eval run that fails at once."""
PYTEST = (sys.executable, "-P", "-u", "-m", "pytest", "-p", PLUGIN, "--color=no")
USAGE_ERROR = 4
"""The exit status of pytest for mistakes in the command or in what it names."""
NOTHING_SELECTED = 5
"""That of pytest if no test is left."""
_REFUSED = {
    "--osmosis-config": "name the config as the argument; submit takes one eval",
    "--osmosis-run": "pass --name=NAME",
    "--osmosis-resume": "pass --name=NAME with the name of the eval run, which resumes it",
    "--osmosis-fresh": "submit under another name, which leaves the eval run that has the name as it is",
    "--osmosis-from": "scores stored rollouts, in the directory of the eval run that made them; run pytest itself",
    "--osmosis-dry-run": "submit makes one itself, and shows the plan before it asks",
}
"""Options that do not go with `submit`, and what to do instead."""
_ENDED: dict[Status, str] = {"finished": "has finished", "stopped": "was stopped", "failed": "failed"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config", type=filled, metavar="CONFIG", help="the TOML of the eval, or TOML::NAME for one of several"
    )
    parser.add_argument(_ARGUMENT, dest="pytest_arguments", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--yes", "-y", action="store_true", help="submit without a question")
    parser.add_argument(
        "--name",
        type=filled,
        metavar="NAME",
        help="the name of the eval run (default: the eval's name and the time); one that did not finish is resumed",
    )
    add_output_options(parser)


def with_pytest_arguments(arguments: list[str]) -> list[str]:
    """Return the arguments after `submit`, of which those for pytest are values of an option.

    >>> with_pytest_arguments(["--osmosis-n=2", "x.toml", "--yes", "--", "-n2"])
    ['x.toml', '--yes', '--pytest-argument=--osmosis-n=2', '--pytest-argument=-n2']
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    of_evals = [argument for argument in arguments[:end] if argument.startswith(_PREFIX)]
    own = [argument for argument in arguments[:end] if not argument.startswith(_PREFIX)]
    return [*own, *(f"{_ARGUMENT}={argument}" for argument in (*of_evals, *arguments[end + 1 :]))]


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    config, as_json, given = options.config, options.json, options.pytest_arguments
    _check(config, given, folder)
    named = [] if options.name is None else [f"--osmosis-run={options.name}"]
    named_eval = config if "::" in config or config.endswith(".toml") else f"--osmosis-config={config}"
    arguments, stdin = _secrets_on_stdin([named_eval, *given], folder)
    plan = _dry_run([*arguments, *named], stdin, folder)
    directory = RunDirectory(Path(plan.folder))
    if not as_json:
        output.live(_plan_lines(plan, directory))
    if not options.yes:
        refused = output.refusal(f"Submit {plan.run}?", "not submitted", asks=not as_json)
        if refused is not None:
            return refused
    pid = _start(directory, plan, [*arguments, f"--osmosis-run={plan.run}"], stdin, folder)
    now = lifecycle_of(directory)
    if as_json:
        named_eval = {"name": plan.run, "path": shown(directory.path), "eval": plan.eval, "status": now.status}
        facts = {"pid": pid, "resumed": plan.manifest is None, "rollouts": plan.n_rollouts, "cost_usd": plan.cost_usd}
        output.json({"schema_version": SCHEMA_VERSION, **named_eval, **facts})
    else:
        output.live(_end_lines(plan, directory, now))
    return 1 if now.status == "failed" else 0


def _secrets_on_stdin(arguments: Sequence[str], folder: Path) -> tuple[Sequence[str], bytes]:
    """Return the arguments, and what the dry run and the eval get on standard input.

    It holds the secrets of a pipe, which only this process can read, and only once. Raises `OsmosisError`.
    """
    words: list[str] = []
    for word in arguments:
        if words and words[-1] == SECRETS_OPTION.rstrip("="):
            words[-1] = f"{SECRETS_OPTION}{word}"
        else:
            words.append(word)
    last = max((index for index, word in enumerate(words) if word.startswith(SECRETS_OPTION)), default=None)
    path = None if last is None else words[last].removeprefix(SECRETS_OPTION)
    if last is None or path is None or not (path == "-" or is_pipe(folder / path)):
        return words, b""
    words[last] = f"{SECRETS_OPTION}-"
    try:
        return words, sys.stdin.buffer.read() if path == "-" else read_secrets_file(folder / path).encode()
    except FileFault as fault:
        raise OsmosisError(f"{path}{'' if fault.line is None else f':{fault.line}'}: {fault}") from None


def _check(config: str, arguments: Sequence[str], folder: Path) -> None:
    file, _, entry = config.partition("::")
    path = folder / file
    fault = fault_of(path)
    if fault is not None:
        raise OsmosisError(f"{file}: {fault}; submit takes the TOML of one eval, like configs/eval/x.toml")
    several = None if entry else read_entries(path)
    if several is not None and len(several.entries) > 1:
        name = shlex.quote(f"{file}::{several.entries[0].name}")
        text = f"holds {plural(len(several.entries), 'eval')}, and submit takes one; name it, as in {name}"
        raise OsmosisError(f"{config}: {text}")
    if is_training_config(path):
        raise OsmosisError(
            f"{config}: is a training config, and submit runs evals; "
            f"test it with pytest {shlex.quote(config)}, "
            "then submit it to Osmosis with osmosis train submit"
        )
    options = {argument.partition("=")[0] for argument in arguments}
    if problems := [f"{option}: {advice}" for option, advice in _REFUSED.items() if option in options]:
        raise OsmosisError("\n".join(problems))


def _dry_run(arguments: Sequence[str], stdin: bytes, folder: Path) -> SubmissionPlan:
    """Return the plan of a command. Raises `OsmosisError` with what pytest says of a command that has problems."""
    with tempfile.TemporaryDirectory(prefix="osmosis-submit-") as scratch:
        path = Path(scratch) / "plan.json"
        words = [*PYTEST, f"{PLAN_OPTION}={path}", "--osmosis-dry-run", *arguments]
        done = subprocess.run(words, cwd=folder, input=stdin, capture_output=True, check=False)
        if done.returncode or not path.exists():
            errors, printed = (text.decode("utf-8", errors="replace").strip() for text in (done.stderr, done.stdout))
            if done.returncode == NOTHING_SELECTED:
                raise OsmosisError("not submitted: these arguments select no run of the eval")
            if done.returncode == USAGE_ERROR and errors:
                raise OsmosisError("\n".join(line.removeprefix("ERROR: ") for line in errors.splitlines() if line))
            nothing = f"the dry run ended with exit status {done.returncode} and said nothing"
            raise OsmosisError("\n".join(filter(None, (printed, errors))) or nothing)
        plan = SubmissionPlan.read(path)
    if plan.refusals:
        raise OsmosisError("\n".join(plan.refusals))
    return plan


def _plan_lines(plan: SubmissionPlan, directory: RunDirectory) -> Iterator[str]:
    yield from plan.lines
    cost = f"about {money(plan.cost_usd)}, by the last eval run" if plan.cost_usd else "none"
    if plan.cost_usd is None:
        cost = "unknown, because no earlier eval run of this plan recorded one"
    yield f"  cost of {plural(plan.n_rollouts, 'rollout')}: {cost}"
    status = None if plan.manifest is not None else lifecycle_of(directory).status
    yield f"  kept in: {shown(directory.path)}{'' if status is None else f', which {_ENDED.get(status, status)}'}"


def _start(directory: RunDirectory, plan: SubmissionPlan, arguments: Sequence[str], stdin: bytes, folder: Path) -> int:
    """Start pytest in the background, and return its process id once its code has loaded or it has died."""
    private.make_folders(directory.path)
    if directory.path.parent.parts[-2:] == RUNS.parts:
        ignore_in_git(directory.path.parent.parent)
    lock = RunLock.take(directory)
    try:
        if plan.manifest is not None:
            private.write(directory.manifest, [json.dumps(plan.manifest, indent=2), "\n"])
        process = _begun(directory, lock, arguments, stdin, folder)
    except BaseException:
        lock.close()
        raise
    lock.forget()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin:  # it has died, and its log says why
            process.stdin.write(stdin)
    deadline = time.monotonic() + STARTS_S
    not_yet = ("pending", "failed")  # an eval run that failed still writes its log
    while process.poll() is None and lifecycle_of(directory).status in not_yet and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return process.pid


def _begun(
    directory: RunDirectory, lock: RunLock, arguments: Sequence[str], stdin: bytes, folder: Path
) -> subprocess.Popen[bytes]:
    """Start pytest with the lock, and note that it was submitted."""
    with open(directory.session_log, "ab", opener=private.opener) as log, _signals_for_background():
        if log.tell():
            log.write(f"\n--- submitted again, {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC ---\n".encode())
            log.flush()
        process = subprocess.Popen(
            [*PYTEST, f"{LOCK_OPTION}={lock.file}", *arguments],
            cwd=folder,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(lock.file,),
            start_new_session=True,
        )
    SubmissionNote(Holder.process(process.pid), arguments, str(folder)).write(directory)
    return process


@contextlib.contextmanager
def _signals_for_background() -> Iterator[None]:
    """Let a process that starts here ignore hangups, and heed Ctrl-C even if a shell has started `submit` with `&`."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if before[signal.SIGINT] is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_lines(plan: SubmissionPlan, directory: RunDirectory, now: Lifecycle) -> Iterator[str]:
    if now.status == "failed":
        yield bad(f"{plan.run} failed at once; the end of its log:")
        yield from LogTail(directory.session_log).last(FAILED_LINES)
        return
    waits = " (pending: its code is still being loaded)" if now.status == "pending" else ""
    yield joined(bold(f"submitted: {plan.run}"), dim(waits))
    run = plan.run if directory.path.parent.parts[-2:] == RUNS.parts else shlex.quote(shown(directory.path))
    yield f"  pytest-osmosis show {run}"
    yield f"  pytest-osmosis runs logs {run} --follow"
    yield f"  pytest-osmosis runs wait {run}"
    yield f"  pytest-osmosis runs stop {run}"
