"""The environment of a node, as a host gets it: that of the relay's process without what Ray put there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

OF_RAY = ("RAY_", "__RAY", "SPT_NOENV", "PWD", "OLDPWD")
"""Beginnings of variables that Ray sets for its workers. PWD is a folder of Ray's."""
FOR_WORKERS = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT")
"""Variables that Ray sets in its workers after they were started. Those of accelerators stay: they say which to use."""
DEVICES = ("_VISIBLE_", "_DEVICES", "ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK")
"""Parts of the names of variables in which Ray says which accelerators an actor got."""


def devices_in(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say which accelerators a process may use.

    >>> devices_in({"CUDA_VISIBLE_DEVICES": "1", "PATH": "/bin"})
    {'CUDA_VISIBLE_DEVICES': '1'}
    """
    return {name: value for name, value in environ.items() if any(part in name for part in DEVICES)}


def node_environ(
    environ: Mapping[str, str], at_start: Mapping[str, str] | None, uploaded: str | None = None
) -> dict[str, str]:
    """Return a worker's environment without Ray's variables. `at_start` is the one with which its process was started.

    Ray puts the folder `uploaded` in front of PYTHONPATH; hosts import from a copy of it.

    >>> node_environ({"PATH": "/bin", "RAY_JOB_ID": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": "/w:/lib"}, {}, "/w")
    {'PATH': '/bin', 'PYTHONPATH': '/lib'}
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(OF_RAY)}
    for name in FOR_WORKERS:
        if at_start is not None and name not in at_start:
            kept.pop(name, None)
    if kept.get("PYTHONBREAKPOINT", "").startswith("ray."):
        del kept["PYTHONBREAKPOINT"]
    if "PYTHONPATH" in kept:
        paths = [
            path for path in kept["PYTHONPATH"].split(os.pathsep) if path and not (uploaded and _is_in(path, uploaded))
        ]
        kept["PYTHONPATH"] = os.pathsep.join(paths)
        if not paths:
            del kept["PYTHONPATH"]
    return kept


def _is_in(path: str, folder: str) -> bool:
    real = os.path.realpath(path)
    return real == (of := os.path.realpath(folder)) or real.startswith(of + os.sep)


def environ_at_start() -> dict[str, str] | None:
    """Return the environment with which this process was started, None if the system does not say."""
    try:
        data = Path("/proc/self/environ").read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(pair).partition("=") for pair in data.split(b"\0") if pair)
    return {name: value for name, _, value in pairs}
