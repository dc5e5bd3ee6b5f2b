"""Environments that are loaded to ask for their rows, each once in a session, in a process that ends with the answer.

Several are loaded at once: `announce` all before the first is needed.

The rows lie in a private temporary folder until the session ends. An eval run keeps a copy (`keep_rows`), from which
its rollouts can be scored without the environment's rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.config.environment_module import EnvironmentModule, name_of
from pytest_osmosis.datasets import Dataset, open_dataset
from pytest_osmosis.engine.host_process import kill_group
from pytest_osmosis.environments.facts import EnvironmentFacts
from pytest_osmosis.environments.rows import FACTS, FAILURE, ROWS, STEP, RowsRequest
from pytest_osmosis.errors import CodeError
from pytest_osmosis.files import private
from pytest_osmosis.host.code_digest import read_anew
from pytest_osmosis.host.rollout_code import environment_code
from pytest_osmosis.processes.guard import GUARD
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.text.numbers import plural, seconds
from pytest_osmosis.text.redaction import Redaction

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
BOOT = "import sys; sys.path.append(sys.argv.pop()); from pytest_osmosis.environments.rows import main; main()"
MOST_OUTPUT_CHARS = 4_000
MOST_AT_ONCE = 4
"""The most environments that load at once: each needs a process, and hundreds of megabytes."""
LONG_S, AGAIN_S = 3.0, 30.0
"""The seconds after which people want to know what they wait for, and want to know it again."""


class _Loading(NamedTuple):
    """An environment that is to be loaded, in variables `environ`."""

    request: RowsRequest
    module: EnvironmentModule
    environ: Mapping[str, str]


class _Begun(NamedTuple):
    """An environment whose process leaves its answer in `folder`. `files` are the digests before."""

    loading: _Loading
    folder: Path
    files: Mapping[str, str]
    answer: Future[dict[str, Any]]


class Environments:
    """The environments that a session has loaded.

    `pythonpath` holds import roots besides the workspace. `say` is called, from any thread, with a line on an
    environment that takes long.
    """

    def __init__(self, pythonpath: Sequence[str] = (), say: Callable[[str], None] = lambda line: None) -> None:
        self._pythonpath = pythonpath
        self._say = say
        self._folder: Path | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._children = _Children()
        self._announced: dict[str, _Loading] = {}
        self._begun: dict[str, _Begun] = {}
        self._known: dict[str, EnvironmentFacts | CodeError] = {}

    def announce(self, config: EvalConfig, module: EnvironmentModule, environ: Mapping[str, str]) -> str:
        """Load the environment of an eval together with the first one that is needed. Returns its key."""
        request: RowsRequest = {
            "env_id": module.env_id,
            "module": module.module,
            "folder": module.folder,
            "args": config.environment.env_args,
            "kwargs": config.environment.extra_env_kwargs,
            "roots": [str(config.workspace), *self._pythonpath],
            "answer": "",
        }
        key = json.dumps([request, str(module.source), sorted(environ.items())], default=dict)
        if key not in self._begun:
            self._announced[key] = _Loading(request, module, environ)
        return key

    def loaded(self, config: EvalConfig, module: EnvironmentModule, environ: Mapping[str, str]) -> EnvironmentFacts:
        """Return the facts about the environment of an eval. Raises `CodeError` if it does not load."""
        key = self.announce(config, module, environ)
        for each, loading in self._announced.items():
            self._begun[each] = self._begin(loading)
        self._announced.clear()
        if key not in self._known:
            try:
                self._known[key] = _facts(self._begun[key])
            except CodeError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, CodeError):
            raise known
        return known

    def close(self) -> None:
        """Remove all rows, and end what still loads. Idempotent."""
        self._children.end()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        folder, self._folder = self._folder, None
        self._known.clear()
        self._begun.clear()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
            GUARD.keep(str(folder))

    def _begin(self, loading: _Loading) -> _Begun:
        from concurrent.futures import ThreadPoolExecutor

        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="osmosis-environments-"))
            GUARD.remove_at_end(str(self._folder))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "osmosis-environments")
        folder = self._folder / f"{len(self._begun)}"
        private.make_folder(folder)
        files = _files(loading.request, loading.module)
        request: RowsRequest = {**loading.request, "answer": str(folder)}
        answer = self._pool.submit(_answer, request, folder, loading.environ, self._children)
        waiting = (loading.module.env_id, folder, answer, self._say)
        threading.Thread(target=_tell, args=waiting, name="osmosis-environment-line", daemon=True).start()
        return _Begun(loading, folder, files, answer)


class _Children:
    """The processes that load environments. Each is ended with all that its code has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects what follows, and that no process is reaped while it is ended
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a process in a group of its own. Raises `OSError`."""
        with self._lock:
            if self._ended:
                raise OSError("the session has ended")
            process = subprocess.Popen(words, start_new_session=True, **options)
            self._running.add(process)
        GUARD.watch(process.pid)
        return process

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # unreaped, so that its id belongs to no other
        with self._lock:
            kill_group(process)
            GUARD.forget(process.pid)
            process.wait()
            self._running.discard(process)

    def end(self) -> None:
        """End all, and start no further one."""
        with self._lock:
            self._ended = True
            for process in self._running:
                kill_group(process)


def _tell(env_id: str, folder: Path, answer: Future[dict[str, Any]], say: Callable[[str], None]) -> None:
    """Say what an environment waits for if it takes long, now and then, and when it is loaded."""
    from concurrent.futures import wait

    begun, pause = time.monotonic(), LONG_S
    while not wait([answer], pause).done:
        step = folder / STEP
        at = step.read_text(encoding="utf-8") if step.is_file() else "a place, or its process"
        say(f"osmosis: loading environment {env_id}: waits for {at} ({seconds(time.monotonic() - begun)})")
        pause = AGAIN_S
    if pause == AGAIN_S and not answer.cancelled() and answer.exception() is None:
        rows = plural(answer.result()["n_rows"], "row")
        say(f"osmosis: loaded environment {env_id}: {rows} ({seconds(time.monotonic() - begun)})")


def _facts(begun: _Begun) -> EnvironmentFacts:
    """Wait for the answer of an environment. Raises `CodeError` if it does not load."""
    loading = begun.loading
    facts = replace(facts_of(begun.answer.result(), loading.module, begun.folder / ROWS), files=begun.files)
    check_files(facts, _files(loading.request, loading.module))
    return facts


def _files(request: RowsRequest, module: EnvironmentModule) -> Mapping[str, str]:
    """Return the digests of the files of an environment as they are now, as a host finds them."""
    read_anew(())
    return environment_code(module.source, request["roots"]).digests


def check_files(facts: EnvironmentFacts, now: Mapping[str, str]) -> None:
    """Raise `CodeError` if files of an environment are others than those that told its rows."""
    changed = [name for name, digest in now.items() if facts.files.get(name, digest) != digest]
    if changed:
        text = f"has changed since environment {facts.env_id} told its rows; start the eval again"
        raise CodeError(f"{changed[0]} {text}, and leave its code as it is while it runs")


def facts_of(answer: Mapping[str, Any], module: EnvironmentModule, rows: Path) -> EnvironmentFacts:
    """Return the facts that an environment told, or that a run directory holds."""
    told = {key: answer[key] for key in ("framework", "n_rows", "pass_threshold", "grouped", "sampling", "tools")}
    return EnvironmentFacts(
        env_id=module.env_id,
        module=module.module,
        folder=module.folder,
        version=module.version,
        rows=rows,
        code=code_digest(module.source),
        functions=tuple(answer["functions"]),
        notes=tuple(answer["notes"]),
        **told,
    )


def code_digest(source: Path) -> str:
    """Return the digest of a module: of its file, or of all modules of its package."""
    package = source.name == "__init__.py"
    files = sorted(source.parent.rglob("*.py")) if package else [source]
    return blake2b(b"".join(_with_name(files, source.parent)), digest_size=16).hexdigest()


def _with_name(files: Sequence[Path], folder: Path) -> Iterator[bytes]:
    for file in files:
        with contextlib.suppress(OSError):
            yield f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes() + b"\0"


def facts_to_json(facts: EnvironmentFacts) -> dict[str, Any]:
    """Return the facts for the manifest of an eval run. `facts_of` reads them back."""
    return {key: value for key, value in asdict(facts).items() if key not in ("rows", "folder", "files")}


def _answer(request: RowsRequest, folder: Path, environ: Mapping[str, str], children: _Children) -> dict[str, Any]:
    """Return the answer of a new process. Raises `CodeError`."""
    output, asked = folder / "output.txt", folder / "request.json"
    private.write(asked, [json.dumps(request, default=dict)])
    with open(output, "wb", opener=private.opener) as log, asked.open("rb") as stdin:
        try:
            process = children.start(
                *(sys.executable, "-u", "-P", "-c", BOOT, PACKAGE_ROOT),  # what it prints is kept however it ends
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=request["roots"][0],
                env=dict(environ),
            )
        except OSError as error:
            raise CodeError(f"environment {request['env_id']}: no process can be started: {error}") from error
        children.wait(process)
    printed = _printed(output)
    for name in (FACTS, FAILURE):
        if (folder / name).is_file():
            answer: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
            if name == FACTS:
                return answer
            raise CodeError(answer["error"], "\n".join(filter(None, [answer["details"].rstrip(), printed])))
    text = f"environment {request['env_id']} does not load: its process ended (exit status {process.returncode})"
    raise CodeError(text, printed)


def _printed(output: Path) -> str:
    """Return the end of what the process printed, with a title, or ""."""
    text = output.read_text(encoding="utf-8", errors="replace").strip()
    return f"it printed:\n{text[-MOST_OUTPUT_CHARS:]}" if text else ""


# -- its rows --------------------------------------------------------------------------------------------


def rows_of(facts: EnvironmentFacts) -> Dataset:
    """Open the rows of an environment. Raises `DatasetError`."""
    return replace(open_dataset(facts.rows, display=f"environment {name_of(facts.env_id)}"), is_generated=True)


def keep_rows(directory: RunDirectory, facts: EnvironmentFacts, redaction: Redaction) -> None:
    """Keep the rows in the run directory, without secrets. Raises `OSError`."""
    with facts.rows.open(encoding="utf-8") as rows:
        private.write(directory.rows, (json.dumps(redaction.value(json.loads(line))) + "\n" for line in rows))
