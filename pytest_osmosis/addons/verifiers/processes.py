"""Environments that are loaded to ask for their rows, each once in a session, in a process that then becomes a host.

Several are loaded at once: `announce` all before the first is needed. A session that rolls out keeps the processes:
`spawning` hands each to the first host that would load the same environment in the same way.

The rows lie in a private temporary folder until the session ends. An eval run keeps a copy, from which its rollouts
can be scored without the environment's rows.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from pytest_osmosis.config.tables import EnvironmentModule
from pytest_osmosis.engine.host_connection import Connection, HostConnection, HostEnviron, Post, Spawn, exit_text
from pytest_osmosis.errors import CodeError
from pytest_osmosis.evals.prepared import SharedChecks
from pytest_osmosis.evals.run_directory import check_files, facts_of
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import parsed
from pytest_osmosis.host.protocol import TEARDOWN_S, HostCode, Setup, TellRequest, become, encode
from pytest_osmosis.host.rollout_code import environment_code, read_anew
from pytest_osmosis.processes.child import EXIT_S, GUARD, HOST, Child, PrestartedHost
from pytest_osmosis.rollouts.environment import EnvironmentFacts

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

ROWS, OUTPUT = "rows.jsonl", "output.txt"
MOST_OUTPUT_CHARS = 4_000
MOST_AT_ONCE, MOST_KEPT = 4, 8
"""The most environments that load at once, and whose processes are kept: each needs hundreds of megabytes."""
LONG_S = 3.0
"""The seconds after which people want to know what they wait for."""
OF_PYTEST = "PYTEST_CURRENT_TEST"
"""The variable that pytest changes from test to test."""


@dataclass(eq=False, slots=True)
class _Loading:
    """An environment to load, with variables `environ`, in a process that may become a host with the same `code`.

    Once it has begun, the process writes to `folder`.
    """

    code: HostCode
    module: EnvironmentModule
    environ: Mapping[str, str]
    rolls_out: bool
    folder: Path = field(init=False)
    answer: Future[Mapping[str, Any]] = field(init=False)


class Environments:
    """The environments that a session has loaded.

    `pythonpath` holds import roots besides the workspace, and code finds what an `SdkShim` has. `say` is called, from
    any thread, with a line on an environment that takes long. A session that rolls out has a `prestarted` host.
    """

    def __init__(
        self,
        pythonpath: Sequence[str] = (),
        say: Callable[[str], None] = lambda line: None,
        *,
        sdk_shim: bool = True,
        prestarted: PrestartedHost | None = None,
    ) -> None:
        self.pythonpath = pythonpath
        self.sdk_shim = sdk_shim
        self._say = say
        self._folder: Path | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._processes = _Processes(prestarted)
        self._announced: dict[str, _Loading] = {}
        self._begun: dict[str, _Loading] = {}
        self._known = SharedChecks()

    def announce(
        self, code: HostCode, module: EnvironmentModule, environ: Mapping[str, str], *, rolls_out: bool
    ) -> str:
        """Load the environment of an eval together with the first one that is needed. Returns its key."""
        source = to_builtins(code.environment)
        key = json.dumps([source, code.roots, str(module.source), sorted(environ.items())], default=dict)
        if key not in self._begun:
            self._announced.setdefault(key, _Loading(code, module, environ, rolls_out))
        return key

    def loaded(self, key: str) -> EnvironmentFacts:
        """Return the facts about an environment. Raises `CodeError` if it does not load."""
        for each, loading in self._announced.items():
            self._begin(loading)
            self._begun[each] = loading
        self._announced.clear()
        return self._known.once(key, lambda: _facts(self._begun[key]))

    def spawning(self, otherwise: Spawn) -> Spawn:
        """Return what starts hosts: it takes a process that is kept, or else starts one as `otherwise` does."""

        def spawn(name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> Connection:
            kept = self._processes.take(setup.code, environ.merged)
            if kept is None:
                return otherwise(name, setup, environ=environ, log=log, post=post)
            host, output = kept
            with contextlib.suppress(OSError), open(log, "ab", opener=private.opener) as file:
                file.write(output.read_bytes())
            return HostConnection(name, setup, environ=environ, log=log, post=post, loaded=host)

        return spawn

    def close(self) -> None:
        """Remove all rows, and end all processes that are no hosts. Idempotent."""
        self._processes.end()
        if self._pool is not None:
            self._pool.shutdown()  # none of them starts any more
        folder, self._folder = self._folder, None
        self._known = SharedChecks()
        self._begun.clear()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
            GUARD.keep(str(folder))

    def _begin(self, loading: _Loading) -> None:
        from concurrent.futures import ThreadPoolExecutor

        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="osmosis-environments-"))
            GUARD.remove_at_end(str(self._folder))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "osmosis-environments")
        loading.folder = self._folder / f"{len(self._begun)}"
        private.make_folder(loading.folder)
        loading.answer = self._pool.submit(self._processes.answer, loading)
        line = f"osmosis: loading environment {loading.module.env_id}; it takes long"
        teller = threading.Timer(LONG_S, self._say, [line])
        teller.daemon = True
        teller.start()
        loading.answer.add_done_callback(lambda _: teller.cancel())


class _Processes:
    """The processes that load environments, and those that are kept. Each is ended with all that its code has started.

    The first one is `prestarted`. If there is none, none is kept.
    """

    def __init__(self, prestarted: PrestartedHost | None) -> None:
        self._lock = threading.Lock()  # protects what follows
        self._prestarted = prestarted
        self._loading: set[Child] = set()
        self._kept: dict[Child, _Loading] = {}
        self._ended = False

    def answer(self, loading: _Loading) -> Mapping[str, Any]:
        """Return the facts that a process tells. Raises `CodeError`."""
        code, environ, env_id = loading.code, loading.environ, loading.module.env_id
        output = loading.folder / OUTPUT
        tell: TellRequest = {"op": "tell", "code": to_builtins(code), "rows": str(loading.folder / ROWS)}
        try:
            host = self._start(output, code.workspace, environ)
        except OSError as error:
            raise CodeError(f"environment {env_id}: no process can be started: {error}") from error
        host.put(encode([become(output, environ, code.workspace), tell]))
        last: Mapping[str, Any] = {}
        with contextlib.suppress(ValueError, TypeError):  # user code can write to the pipe too
            last = {**parsed(host.stdout.readline().decode())}
        facts: Mapping[str, Any] | None = last.get("facts")
        if facts is not None and self._keep(host, loading):
            return facts
        [status] = self._release([host])
        if facts is not None:
            return facts
        printed = _printed(output)
        if "error" in last:
            raise CodeError(last["error"], "\n".join(filter(None, [str(last.get("details", "")).rstrip(), printed])))
        raise CodeError(f"environment {env_id} does not load: its process ended ({exit_text(status)})", printed)

    def _start(self, output: Path, cwd: str, environ: Mapping[str, str]) -> Child:
        with self._lock:
            if self._ended:
                raise OSError("the session has ended")
            host = None if self._prestarted is None else self._prestarted.take(environ)
            if host is None:
                with open(output, "ab", opener=private.opener) as log:
                    host = Child(HOST, log, cwd=cwd, environ=environ)
            self._loading.add(host)
        return host

    def _keep(self, host: Child, loading: _Loading) -> bool:
        """Keep a process that has told its rows; return False if it is to end."""
        with self._lock:
            is_kept = self._prestarted is not None and loading.rolls_out and not self._ended
            if not is_kept or len(self._kept) >= MOST_KEPT:
                return False
            self._loading.discard(host)
            self._kept[host] = loading
        return True

    def take(self, code: HostCode, environ: Mapping[str, str]) -> tuple[Child, Path] | None:
        """Return a process that has loaded what a host with this code and environment would, and its output."""
        variables = {**environ, OF_PYTEST: ""}
        with self._lock:
            for host, then in self._kept.items():
                same = then.code == code and {**then.environ, OF_PYTEST: ""} == variables
                if same and host.is_alive:
                    del self._kept[host]
                    return host, then.folder / OUTPUT
        return None

    def end(self) -> None:
        """End all, and start no further one. Those that are kept may release first what they hold."""
        with self._lock:
            self._ended = True
            for host in self._loading:
                host.kill()
            kept, self._kept = self._kept, {}
        if kept:
            self._release(kept)

    def _release(self, hosts: Collection[Child]) -> list[int]:
        """Let processes end, and return their exit statuses. They may take some time to release what they hold."""
        until = time.monotonic() + TEARDOWN_S + EXIT_S
        for host in hosts:
            host.put(encode([{"op": "close"}]))
        return [self._reaped(host, until - time.monotonic()) for host in hosts]

    def _reaped(self, host: Child, within_s: float) -> int:
        with host.stdout:
            status = host.reaped(within_s)
        with self._lock:
            self._loading.discard(host)
        return status


def _facts(loading: _Loading) -> EnvironmentFacts:
    """Wait for the answer of an environment. Raises `CodeError` if it does not load, or changes meanwhile."""
    facts = facts_of(loading.answer.result(), loading.module, loading.folder / ROWS)
    read_anew(())
    check_files(facts, environment_code(loading.module.source, loading.code.roots))
    return facts


def _printed(output: Path) -> str:
    """Return the end of what the process printed, with a title, or ""."""
    text = output.read_text(encoding="utf-8", errors="replace").strip()
    return f"it printed:\n{text[-MOST_OUTPUT_CHARS:]}" if text else ""
