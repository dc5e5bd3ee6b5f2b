"""Tools of an MCP server (`--osmosis-mcp`), and the built-in agent that calls them until the model answers.

The FastMCP server of a folder is loaded as `python <folder>/main.py` would: its siblings come before all else. A folder
of tools is often called `mcp`, like the package that fastmcp imports, and its modules have names like `server` and
`tools`, as other code may. So fastmcp is imported before any folder of the user's is on `sys.path`, and modules of
other code are out of sight while the server's are imported.

Each rollout connects to the server by itself, in memory, so that what its tools print belongs to the rollout. The
server object is shared by all rollouts of a host, and its lifespan by those in flight. Only the public API of fastmcp
is used: `Client`, `list_tools` and `call_tool`. Source of the behaviour: osmosis_ai.rollout.mcp, SDK 0.2.17.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.rollout_code import add_roots, module_of_file
from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.agents import ChatContext, RolloutOutput
from pytest_osmosis.text.names import listed
from pytest_osmosis.text.user_code import described

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
    package = sys.modules[PACKAGE] = ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    module, execute = module_of_file(f"{PACKAGE}.main", folder / "main.py")
    with _siblings_first(folder), _not_running(str(folder / "main.py")):
        execute()
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
        add_roots([str(folder)])  # tools may import siblings when they are called
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


TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names that OpenAI takes for functions."""
MAX_TURNS = "max_turns"


class UnusableTools(Exception):
    """The server has no tool, or tools that cannot be offered to a model."""


class McpAgent(Struct, frozen=True):
    """Offers the `tools` of `server`, a FastMCP object, and calls those that the model asks for, in their order."""

    server: Any
    tools: Sequence[Mapping[str, Any]]

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the conversation, up to an answer without tool calls or to the turn `ctx.max_turns`."""
        from fastmcp import Client

        messages: list[Message] = list(ctx.prompt)
        metrics: dict[str, float] = {"tool_calls": 0, "tool_errors": 0}
        async with Client(self.server) as client:
            for _ in range(ctx.max_turns):
                reply = await ctx.chat(messages, self.tools)
                messages.append(reply.message)
                asked = reply.message.get("tool_calls") or []
                if not asked:
                    return RolloutOutput(messages, metrics, {})
                for call in asked:
                    content, failed = await _answer(client, call)
                    messages.append({"role": "tool", "content": content, "tool_call_id": call.get("id", "unknown")})
                    metrics["tool_calls"] += 1
                    metrics["tool_errors"] += failed
        return RolloutOutput(messages, metrics, {"finish_reason": MAX_TURNS})


async def _answer(client: Any, call: Mapping[str, Any]) -> tuple[str, bool]:
    """Call a tool, and return its result and True if it failed. Whatever it raises is told to the model."""
    try:
        name, arguments = _called(call)
        result = await client.call_tool(name, arguments, raise_on_error=False)
        return (f"Error: {_text(result)}", True) if result.is_error else (_value_text(result), False)
    except Exception as error:
        return f"Error: {error}", True


def _called(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a tool call. Raises `ValueError`.

    Models without arguments may send "" for them.
    """
    function = call.get("function") or {}
    given = function.get("arguments") or "{}"
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ValueError(f"Invalid JSON arguments: {error}") from error
    if not isinstance(arguments, dict):
        raise ValueError(f"Expected dict from JSON, got {type(arguments).__name__}")
    return function.get("name") or "", arguments


def _value_text(result: Any) -> str:
    """Return what a tool returned as the text that the model gets: structured content, or else the parts of it."""
    structured = result.structured_content
    if structured is None:
        return _text(result)
    value = structured["result"] if list(structured) == ["result"] else structured
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else json.dumps(value)


def _text(result: Any) -> str:
    """Return the texts among the parts of a result. Of others, which no tool message can hold, their type is told."""
    return "\n".join(filter(None, map(_part_text, result.content)))


def _part_text(part: Any) -> str:
    if isinstance(text := getattr(part, "text", None), str):
        return text
    resource = getattr(part, "resource", None)
    if isinstance(text := getattr(resource, "text", None), str):
        return text
    if part.type == "resource_link":
        return f"[{part.uri}]"
    fields = part.model_dump(by_alias=True) if resource is None else resource.model_dump(by_alias=True)
    return f"[{part.type}, {fields.get('mimeType') or 'unknown type'}: not shown]"


async def offered_tools(server: Any) -> list[dict[str, Any]]:
    """Return the tools of a server as functions of OpenAI's API. Raises `UnusableTools`."""
    from fastmcp import Client

    async with Client(server) as client:
        tools = await client.list_tools()
    if not tools:
        raise UnusableTools("the server has no tools; register functions with @mcp.tool, and import their modules")
    refused = [described(tool.name) for tool in tools if not TOOL_NAME.fullmatch(tool.name)]
    if refused:
        raise UnusableTools(
            f"names of tools that models cannot call: {', '.join(refused)}; a name has up to 64 letters, digits, "
            "underscores and hyphens: rename them with @mcp.tool(name=...)"
        )
    return [_function(tool.model_dump(by_alias=True, exclude_none=True)) for tool in tools]


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function of OpenAI's API for a tool in the fields of MCP."""
    parameters = {"type": "object", "properties": {}, **tool["inputSchema"]}
    description = {"description": tool["description"]} if tool.get("description") else {}
    return {"type": "function", "function": {"name": tool["name"], **description, "parameters": parameters}}
