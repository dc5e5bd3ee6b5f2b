"""The host process: takes its pipes, loads the user's code, serves one engine, ends.

The file descriptors of the protocol are moved away first, so that user code cannot harm it through 0, 1 and 2: 0 reads
nothing, 1 and 2 are the log. The end of the input means that the engine is gone: the process and all that it started
are killed at once.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import Any

from pytest_osmosis import seams
from pytest_osmosis.endpoint.rollouts import changed_environ
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host import output
from pytest_osmosis.host.chat import Clients, clients_of
from pytest_osmosis.host.exchanges import opened_store
from pytest_osmosis.host.host_endpoint import HostEndpoint
from pytest_osmosis.host.loading import UserCode, load, load_environment
from pytest_osmosis.host.protocol import (
    BecomeRequest,
    HostCode,
    RefusedEvent,
    Setup,
    SetupRequest,
    TellRequest,
    ToldEvent,
    encode,
    secrets_of,
)
from pytest_osmosis.host.server import HostServer, RequestReader, end_process_group, take_pipes
from pytest_osmosis.host.user_errors import raise_no_terminal
from pytest_osmosis.processes.child import allow_many_files, leave_no_core_file
from pytest_osmosis.text.redaction import Redaction

THREADS_S = 0.5
"""At the end, threads that user code left running get this long."""
COLLECT_AFTER = 10_000
"""The threshold of the garbage collector: rollouts make many objects, and few of them in cycles."""
COLLECT_AFTER_LOADING = 1_000_000
"""The threshold while code is loaded: imports make many objects, and nearly all of them stay."""


def main() -> None:
    """Serve one engine, from its `setup` to its `close`. Before `setup` it may be asked for the rows of an
    environment."""
    requests, events = take_pipes()
    request = _next_request(requests)
    if request is None:
        return
    code, environ = HostCode.from_json(request), dict(os.environ)
    redaction = Redaction(secrets_of(code, environ))
    _prepare_process(redaction)
    endpoint, sdk_shim, environment = HostEndpoint(code, environ), seams.sdk_shim(), None
    if request["op"] == "tell":
        with suppress(Exception):  # a listing has no keys, and a replay needs none
            _clients(Setup(code), environ)  # imported now, and made once more for the eval
        _begin_to_load(code, endpoint, sdk_shim)
        environment = _tell(Path(request["rows"]), code, events, redaction)
        request = None if environment is None else _next_request(requests)
        if request is None or request["op"] == "tell":  # it tells them once
            if environment is not None:
                seams.release(environment)
            _finish()
            return
    setup = Setup.from_json(request)
    reader = RequestReader(requests)
    reader.start()
    as_given = {name: environ.get(name) for name in {*environ, *os.environ}}  # an environment may have changed it
    with changed_environ(as_given):
        clients = _clients(setup, environ)
    if environment is None:
        _begin_to_load(code, endpoint, sdk_shim)
    try:
        store = opened_store(setup)
        user_code = _load(setup, sdk_shim, environment)
    except CodeError as error:
        _refuse(error, events, redaction)
        return
    HostServer(setup, user_code, clients, endpoint, events, redaction, store).serve(reader)
    _finish()


def _next_request(requests: BufferedReader) -> TellRequest | SetupRequest | None:
    """Return the next request, or None if there is nothing to do. A prestarted host first becomes another's process."""
    line = requests.readline()
    if not line:  # the engine is gone
        end_process_group()
    message: Any = json.loads(line)
    if message["op"] == "become":
        _become(message)
        return _next_request(requests)
    return None if message["op"] == "close" else message


def _become(message: BecomeRequest) -> None:
    if message["environ"] is not None:
        os.chdir(message["cwd"])
        os.environ.clear()
        os.environ.update(message["environ"])
        time.tzset()
    log = os.open(message["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _prepare_process(redaction: Redaction) -> None:
    leave_no_core_file()
    allow_many_files()
    faulthandler.enable(all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output.install(redaction.text)
    if not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = raise_no_terminal


def _clients(setup: Setup, environ: Mapping[str, str]) -> Clients:
    """Return the models' clients.

    They are made before user code is imported, so that a user's `openai.py` cannot take their place. Clients describe
    the platform to their servers, and finding that out starts a process; do it before user code may fork.
    """
    code = setup.code
    if code.role == "roll" and any(target["client"] != "embedded" for target in code.model_targets.values()):
        platform.platform()
    return clients_of(setup, environ)


def _tell(rows: Path, code: HostCode, events: int, redaction: Redaction) -> seams.LoadedEnvironment | None:
    """Load an environment and tell its rows. Returns None if it does not load, which is told too."""
    try:
        environment = load_environment(code)
        told: ToldEvent = {"ev": "told", "facts": seams.environment_facts(environment, code, rows)}
        os.write(events, encode([told]))
    except CodeError as error:
        _refuse(error, events, redaction)
        return None
    return environment


def _refuse(error: CodeError, events: int, redaction: Redaction) -> None:
    event: RefusedEvent = {"ev": "refused", "error": str(error), "details": error.details}
    os.write(events, redaction.event(event).encode() + b"\n")


def _begin_to_load(code: HostCode, endpoint: HostEndpoint, sdk_shim: seams.SdkShim | None) -> None:
    """Prepare this process for user code, with few garbage collections while it loads."""
    if code.role == "roll":
        endpoint.set_variables()
    gc.set_threshold(COLLECT_AFTER_LOADING)
    gc.enable()  # what started this process imported us without
    if code.sdk_shim and sdk_shim is not None:
        sdk_shim.install()


def _load(setup: Setup, sdk_shim: seams.SdkShim | None, environment: seams.LoadedEnvironment | None) -> UserCode:
    """Load the user's code. What stands in for `osmosis_ai` stays installed."""
    code = load(setup, environment)
    code = replace(code, notes=(*code.notes, *(sdk_shim.notes if sdk_shim is not None else ())))
    gc.freeze()  # imported objects stay to the end, so no later collection needs to look at them
    if gc.get_threshold()[0] == COLLECT_AFTER_LOADING:  # else user code has set its own
        gc.set_threshold(COLLECT_AFTER)
    return code


def _finish() -> None:
    """Let the process end without tearing down its modules, which would only take time. Exit handlers run.

    Threads that user code left running get `THREADS_S`. Without `atexit._run_exitfuncs` they would keep the host alive
    until the engine kills it; tests/engine/test_engine_hosts.py notices.
    """

    def end() -> None:
        timer.cancel()
        atexit.unregister(end)
        atexit._run_exitfuncs()
        with suppress(Exception):  # user code may have replaced it
            sys.stdout.flush()
        os._exit(0)

    timer = threading.Timer(THREADS_S, end)
    timer.daemon = True
    timer.start()
    atexit.register(end)  # the interpreter calls it, before all others, once it has waited for the threads
