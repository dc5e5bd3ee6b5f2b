"""The program of the bridge: Ray's driver, in a child of pytest's process.

Frames arrive on its standard input, and leave on what was its standard output; all else that is printed goes to
standard error. It ends with its standard input, and takes all hosts along.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pytest_osmosis.addons.ray.frames import Frame, Kind, read_frame
from pytest_osmosis.addons.ray.needs import HostNeeds
from pytest_osmosis.addons.ray.placement import Actors, end_of_actor
from pytest_osmosis.config.tables import RayOptions

ANSWER_S = 10.0
END_S = 8.0
NEVER_UPLOADED = (".env*", ".osmosis", ".git", ".venv", "__pycache__")
BEFORE_IMPORT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
"""Ray reads these when it is imported. `uv run` would upload the current folder."""
SEARCH_S = "15"
"""The seconds for which Ray looks for a node of the cluster on this machine; by itself it does for a minute."""
INSTALL = 'Ray is not installed here: pip install "pytest-osmosis[ray]"'
START = (
    "No Ray cluster was found on this machine. Set [execution.ray] address or RAY_ADDRESS to HOST:PORT of the head, "
    "or start one here: ray start --head"
)
SAID_CHARS = 2_000
"""The most that is shown of an error of Ray's."""
MISMATCH, NONE_FOUND = "Version mismatch", "Could not find any running Ray instance"


class ConnectionRefusal(Exception):
    """No connection, and what to do about it."""


def main() -> NoReturn:
    output = os.dup(1)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lock = threading.Lock()  # one frame after the other

    def say(frame: Frame) -> None:
        """Write a frame. This process ends if nobody reads them any more."""
        data = memoryview(frame.encode())
        with lock:
            try:
                while data:
                    data = data[os.write(output, data) :]
            except OSError:
                os._exit(1)

    read = sys.stdin.buffer.read
    first = read_frame(read)
    if first is None or first.kind is not Kind.CONNECT:
        os._exit(0)
    fields = json.loads(first.first)
    options = RayOptions(**{**fields["options"], "exclude": tuple(fields["options"]["exclude"])})
    driver = Driver(options, fields["upload"], say, only_here=fields["only_here"])
    driver.start()
    while (frame := read_frame(read)) is not None and frame.kind is not Kind.CLOSE:
        driver.actors.put(frame)
    driver.close()
    os._exit(0)


class Driver:
    """Connects to the cluster and has hosts started, in a thread. It ends this process if it cannot."""

    def __init__(self, options: RayOptions, upload: str, say: Callable[[Frame], None], *, only_here: bool) -> None:
        self._options = options
        self._upload = upload
        self._say = say
        self._is_connected = threading.Event()
        self.actors = Actors(HostNeeds(options.resources), say, upload=upload, only_here=only_here)
        self._thread = threading.Thread(target=self._work, name="osmosis-driver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End all hosts, and leave the cluster."""
        if self._is_connected.is_set():
            self.actors.close()
            self._thread.join(END_S)

    def _work(self) -> None:
        try:
            address, ray = connected(self._options.address, runtime_env(self._options, self._upload))
        except ConnectionRefusal as refusal:
            self._refuse(str(refusal))
        except Exception as error:  # whatever Ray raises: else nobody would hear of it
            self._refuse(f"Ray cannot connect to the cluster: {type(error).__name__}: {error}")
        self._is_connected.set()
        try:
            self.actors.run(address, ray)
        except Exception as error:
            import traceback

            traceback.print_exc()
            self._refuse(f"The connection to the Ray cluster at {address} broke: {type(error).__name__}: {error}")

    def _refuse(self, text: str) -> NoReturn:
        self._say(Frame(Kind.REFUSED, 0, text.encode()))
        os._exit(1)


def runtime_env(options: RayOptions, upload: str) -> dict[str, Any]:
    """Return the runtime environment of all actors. Its variables would be in Ray's logs: it has none."""
    excludes = [*NEVER_UPLOADED, *options.exclude]
    return {**options.runtime_env, **({"working_dir": upload, "excludes": excludes} if upload else {})}


def connected(option: str | None, runtime_env: Mapping[str, Any]) -> tuple[str, str]:
    """Connect to a running cluster, which gets the files of `runtime_env`, and return its address and version.

    Raises `ConnectionRefusal`.
    """
    os.environ.update(BEFORE_IMPORT)
    os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", SEARCH_S)
    origin = "RAY_ADDRESS" if option is None else "[execution.ray] address"
    wanted = option or os.environ.get("RAY_ADDRESS") or "auto"
    check_form(wanted, origin)
    if wanted != "auto":
        check_answers(wanted, origin)
        os.environ.pop("RAY_ADDRESS", None)  # Ray would prefer it to the option
    try:
        import ray
        from ray.exceptions import RuntimeEnvSetupError
    except ImportError as error:
        raise ConnectionRefusal(INSTALL if error.name == "ray" else f"Ray cannot be imported here: {error}") from error
    try:  # "auto" as it is: Ray uses the token in the user's folder only if it finds the cluster itself
        ray.init(
            address=wanted,
            runtime_env={**runtime_env},
            log_to_driver=False,
            include_dashboard=False,
            configure_logging=False,
        )
    except RuntimeEnvSetupError as error:
        raise ConnectionRefusal(end_of_actor(error).how) from error
    except Exception as error:
        raise ConnectionRefusal(refusal_text(error, wanted)) from error
    return ray.get_runtime_context().gcs_address, ray.__version__


def check_form(address: str, origin: str) -> None:
    """Refuse an address that is no HOST:PORT."""
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdigit() and "://" not in address):
        raise ConnectionRefusal(
            f"{origin}: {address} is no address of a Ray cluster. Give HOST:PORT of its head (usually port 6379), or "
            '"auto"; Ray Client (ray://) cannot run hosts.'
        )


def check_answers(address: str, origin: str) -> None:
    """Refuse an address, set by `origin`, at which nothing answers: Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise ConnectionRefusal(
            f"No Ray cluster answers at {address}: {error}. Check {origin}, and that the head runs "
            "(`ray status` there)."
        ) from error


def refusal_text(error: BaseException, address: str) -> str:
    """Return why Ray did not connect, and what to do about it."""
    chain: list[str] = []
    each: BaseException | None = error
    while each is not None:
        chain.append(str(each).strip())
        each = each.__cause__ or each.__context__
    said = "\n".join(chain)
    _, mismatch, versions = said.partition(MISMATCH)
    if mismatch:
        return (
            f"{mismatch}{' '.join(versions.split())}. Both must match, down to the patch: install here what the "
            f"cluster at {address} has."
        )
    if NONE_FOUND in said:
        return START
    if "No node info found" in said or "node to connect" in said or "one of the Raylet" in said:
        return (
            f"This machine is not part of the Ray cluster at {address}. Join it first, without lending it CPUs: "
            f"ray start --address={address} --num-cpus=0"
        )
    if "AuthenticationError" in said:
        return (
            f"The Ray cluster at {address} asks for a token, and this process sent none or another one. Set "
            "RAY_AUTH_MODE=token, without which Ray sends none to an address that is given, and RAY_AUTH_TOKEN or "
            "~/.ray/auth_token, as on the nodes."
        )
    last = next((text for text in reversed(chain) if text), type(error).__name__)
    before, is_traceback, after = last.partition("Traceback (most recent call last):\n")
    why = before + after.splitlines()[-1].strip() if is_traceback else before
    return f"The Ray cluster at {address} does not take this process as its driver: {why[:SAID_CHARS]}"


if __name__ == "__main__":
    main()
