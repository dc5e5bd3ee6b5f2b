"""Loads the FastMCP server of a folder, as `python <folder>/main.py` would: its siblings come before all else.

A folder of tools is often called `mcp`, like the package that fastmcp imports, and its modules have names like `server`
and `tools`, as other code may. So fastmcp is imported before any folder of the user's is on `sys.path`, and modules of
other code are out of sight while the server's are imported.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.rollout_code import spec_of_file
from pytest_osmosis.rollouts.mcp import McpAgent, UnusableTools, offered_tools
from pytest_osmosis.text.names import listed

PACKAGE = "_osmosis_mcp"
"""The package of `main`, so that it may also import its siblings by `from .tools import ...`, as in the SDK."""
PREFERRED = ("mcp", "server", "app")
"""The names that fastmcp's own commands look for."""
MISSING = "fastmcp is not installed; pip install 'pytest-osmosis[mcp]'"


def import_fastmcp(roots: Sequence[str]) -> None:
    """Import fastmcp, and what it imports, from outside of the user's `roots`. Raises `CodeError` without it."""
    before = list(sys.path)
    folders = [Path(root).resolve() for root in roots]
    users = [path for path in before if not path or Path(path).resolve() in folders]  # by PYTHONPATH
    sys.path[:] = [path for path in before if path not in users]
    try:
        importlib.import_module("fastmcp")
        importlib.import_module("mcp")
    except ModuleNotFoundError as error:
        if error.name != "fastmcp":
            raise
        raise CodeError(f"[agent] mcp: {MISSING}") from None
    finally:
        sys.path[:] = before


def mcp_agent(folder: Path, reporting: Callable[[str, Callable[[], Any]], Any]) -> McpAgent:
    """Return the agent for the server in `folder`. `reporting` makes errors of the user's code a `CodeError`."""
    name = str(folder / "main.py")
    server = _server(name, reporting(name, lambda: _main(folder)))
    return McpAgent(server, reporting(name, lambda: _tools(name, server)))


def _tools(name: str, server: Any) -> list[dict[str, Any]]:
    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:  # sets no loop of its thread
            return runner.run(offered_tools(server))
    except UnusableTools as error:
        raise CodeError(f"{name}: {error}") from None


def _main(folder: Path) -> ModuleType:
    """Import `main.py` of a folder."""
    package = ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    spec = spec_of_file(f"{PACKAGE}.main", folder / "main.py")
    if spec is None or spec.loader is None:
        raise CodeError(f"{folder}: cannot be imported from")
    module = importlib.util.module_from_spec(spec)
    sys.modules.update({PACKAGE: package, spec.name: module})
    with _siblings_first(folder), _not_running(str(folder / "main.py")):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _siblings_first(folder: Path) -> Iterator[None]:
    """A context in which modules of `folder` are imported before all others. They stay importable later."""
    hidden = _hide(_module_names(folder))
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        # Tools may import siblings when they are called. Our own imports must not find them in place of Python's.
        first = next((index for index, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))
        sys.path.insert(first, str(folder))
        for name in {module.partition(".")[0] for module in hidden}:
            _hide({name})
        sys.modules.update(hidden)


def _module_names(folder: Path) -> set[str]:
    """Return the names of the modules and packages in a folder, without those of Python's own modules."""
    modules = {path.stem for path in folder.glob("*.py")}
    packages = {path.name for path in folder.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    return (modules | packages) - sys.stdlib_module_names - {"fastmcp", "mcp"}


def _hide(names: set[str]) -> dict[str, ModuleType]:
    """Take the modules of these names, and all below them, out of `sys.modules`."""
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
    for name in hidden:
        del sys.modules[name]
    return hidden


@contextmanager
def _not_running(name: str) -> Iterator[None]:
    """A context in which a server does not begin to serve: `mcp.run()` would block forever."""
    from fastmcp import FastMCP

    def run(self: object, *arguments: object, **options: object) -> None:
        raise CodeError(f'{name}: calls run() when it is imported; guard it with `if __name__ == "__main__":`')

    methods: Mapping[str, Any] = {method: getattr(FastMCP, method) for method in ("run", "run_async")}
    for method in methods:
        setattr(FastMCP, method, run)
    try:
        yield
    finally:
        for method, original in methods.items():
            setattr(FastMCP, method, original)


def _server(name: str, module: ModuleType) -> Any:
    """Return the FastMCP object of a module. Raises `CodeError` if there is none, or several with other names."""
    from fastmcp import FastMCP

    servers = {key: value for key, value in vars(module).items() if isinstance(value, FastMCP)}
    for key in PREFERRED:
        if key in servers:
            return servers[key]
    distinct = {id(server): key for key, server in servers.items()}
    if len(distinct) == 1:
        return next(iter(servers.values()))
    if not servers:
        raise CodeError(f'{name}: holds no FastMCP object; make one, like `mcp = FastMCP("tools")`, or import it')
    raise CodeError(f"{name}: holds several FastMCP objects ({listed(servers, 10)}); call the one to use mcp")
