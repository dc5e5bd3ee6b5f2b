"""The host process: takes its pipes, loads the user's code, serves one engine, ends.

The file descriptors of the protocol are moved away first, so that user code cannot harm it through 0, 1 and 2: 0 reads
nothing, 1 and 2 are the log. The end of the input means that the engine is gone: the process and all that it started
are killed at once.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import platform
import signal
import sys
import time
from dataclasses import replace
from io import BufferedReader

from pytest_osmosis.compat.stand_in import StandIn
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host import fast_exit, output
from pytest_osmosis.host.clients import Clients, clients_of
from pytest_osmosis.host.exchanges import opened_store
from pytest_osmosis.host.host_endpoint import HostEndpoint
from pytest_osmosis.host.loading import UserCode, load
from pytest_osmosis.host.pipes import RequestReader, take_pipes
from pytest_osmosis.host.protocol import BecomeRequest, RefusedEvent, Setup, SetupRequest
from pytest_osmosis.host.secret_values import secrets_of
from pytest_osmosis.host.server import HostServer
from pytest_osmosis.host.user_errors import raise_no_terminal
from pytest_osmosis.processes.core_files import leave_no_core_file
from pytest_osmosis.processes.open_files import allow_many_files
from pytest_osmosis.text.redaction import Redaction

COLLECT_AFTER = 10_000
"""The threshold of the garbage collector: rollouts make many objects, and few of them in cycles."""
COLLECT_AFTER_LOADING = 1_000_000
"""The threshold while code is loaded: imports make many objects, and nearly all of them stay."""


def main() -> None:
    """Serve one engine, from its `setup` to its `close`."""
    requests, events = take_pipes()
    request = _setup_request(requests)
    if request is None:
        return
    setup = Setup.from_json(request)
    redaction = Redaction(secrets_of(setup, os.environ))
    _prepare_process(redaction)
    reader = RequestReader(requests)
    reader.start()
    clients = _clients(setup)
    endpoint = HostEndpoint(setup, os.environ)
    if setup.role == "roll":
        endpoint.set_variables()
    try:
        store = opened_store(setup)
        code = _load(setup)
    except CodeError as error:
        refused: RefusedEvent = {"ev": "refused", "error": str(error), "details": error.details}
        os.write(events, redaction.event(refused).encode() + b"\n")
        return
    HostServer(setup, code, clients, endpoint, events, redaction, store).serve(reader)
    fast_exit.finish()


def _setup_request(requests: BufferedReader) -> SetupRequest | None:
    """Return the `setup` request, or None if the engine ended. A prestarted host first becomes the eval's process."""
    message: BecomeRequest | SetupRequest | None = json.loads(requests.readline() or "null")
    if message is None or message["op"] == "setup":
        return message
    _become(message)
    return json.loads(requests.readline())  # type: ignore[no-any-return]


def _become(message: BecomeRequest) -> None:
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


def _clients(setup: Setup) -> Clients:
    """Return the models' clients.

    They are made before user code is imported, so that a user's `openai.py` cannot take their place. Clients describe
    the platform to their servers, and finding that out starts a process; do it before user code may fork.
    """
    if setup.role == "roll" and any(target["client"] != "embedded" for target in setup.model_targets.values()):
        platform.platform()
    return clients_of(setup, os.environ)


def _load(setup: Setup) -> UserCode:
    """Load the user's code, with few garbage collections meanwhile. What stands in for `osmosis_ai` stays installed."""
    gc.set_threshold(COLLECT_AFTER_LOADING)
    gc.enable()  # what started this process imported us without
    stand_in = StandIn()
    if setup.stand_in:
        stand_in.install()
    code = load(setup)
    code = replace(code, notes=(*code.notes, *stand_in.notes))
    gc.freeze()  # imported objects stay to the end, so no later collection needs to look at them
    if gc.get_threshold()[0] == COLLECT_AFTER_LOADING:  # else user code has set its own
        gc.set_threshold(COLLECT_AFTER)
    return code
