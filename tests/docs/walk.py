"""Walk through a page like a reader: write its files and type its commands, in order, in one workspace."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import yaml

from pytest_osmosis.addons.osmosis_sdk.shim import SdkShim
from pytest_osmosis.config import load_entries
from pytest_osmosis.config.document import read_document
from pytest_osmosis.config.endpoints import Registry
from pytest_osmosis.models.providers import SERVICES
from tests.demo_servers import demo_server
from tests.docs.blocks import REPOSITORY, Block, Needs, blocks_of, needs_of
from tests.docs.printed import OURS, commands, difference, problem, without_environment

DEADLINE_S = 300
SERVERS_APART = 1000
"""Ports between the servers of a page, if its first one has a port of its own."""
ONLY_OURS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_osmosis.plugin,xdist.plugin"}
"""Variables that load only our plugin and xdist; starting the other plugins here takes a second per command."""
INHERITED = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")

OFFICIAL = {service.url_env: service.base_url for service in SERVICES.values() if service.url_env is not None}
"""The official address of each provider, by the variable that overrides it; pages show this address."""

LEAST = {
    "experiment": 'model_path = "demo/arithmetic"\ndataset = "rows"',
    "scoring": 'eval_fns = ["rewards:score"]',
    "secrets": "required = []",
}
"""The tables that make a fragment a whole config."""

TESTPATHS = ("tests", "pytest_osmosis")
"""pytest's testpaths in pyproject.toml; a copy of the repository has them as empty folders."""

LEFT_BEHIND = shutil.ignore_patterns(".osmosis", "__pycache__", ".pytest_cache")

LISTING = """
import json, sys, tempfile, pytest
with tempfile.TemporaryDirectory() as cache:
    for words in json.loads(sys.argv[1]):
        status = pytest.main([*words, "--co", "-qq", "-o", f"cache_dir={cache}"])
        if status:
            sys.exit(f"exit {int(status)}: {words}")
"""


class Page:
    """A page to walk through. `problems` collects what is wrong, `outputs` what its commands printed."""

    deadline_s: float = DEADLINE_S
    port: int = 0
    """The port of the page's server, any free one if it is 0."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.needs = Needs()
        self.problems: list[str] = []
        self.outputs: list[tuple[Block, str]] = []
        self._printed: str | None = None
        self._env = environment()
        self._addresses: dict[str, str] = {}
        """The address of the demo server for each address on the page."""

    def walk(self) -> None:
        self.needs = needs_of(self.path)
        self._env |= self.needs.env
        with ExitStack() as stack:
            for index, server in enumerate(self.needs.servers):
                port = self.port + SERVERS_APART * index if self.port else 0
                names = [f"--model={name}" for name in server.get("models", "").split(",") if name]
                key = [f"--api-key={server['key']}"] if "key" in server else []
                address = stack.enter_context(demo_server(f"--port={port}", *names, *key)).base_url
                if server["server"].startswith("http"):
                    self._addresses[server["server"]] = address
                else:
                    provider = OFFICIAL[server["server"]]
                    self._env[server["server"]] = address[: None if provider.endswith("/v1") else -len("/v1")]
                    self._addresses[provider] = self._env[server["server"]]
            self._begin()
            for block in blocks_of(self.path):
                if wrong := block.problem or self._problem_of(block):
                    self.problems.append(f"{block.where}: {wrong}")

    def _begin(self) -> None:
        match self.needs.workspace:
            case None:
                return
            case "repository":
                _copy_repository(self.folder)
                for name in ONLY_OURS:  # its pyproject.toml has keys of the other plugins
                    del self._env[name]
            case name if name.startswith("examples/"):
                shutil.copytree(REPOSITORY / name, self.folder, ignore=LEFT_BEHIND, dirs_exist_ok=True)
            case name:
                self._typed(f"python -m pytest_osmosis init {name}")

    def _problem_of(self, block: Block) -> str | None:
        match (block.language, block.way):
            case (_, "file"):
                return self._file(block)
            case ("toml", "into"):
                return self._into(block)
            case ("toml", "fragment"):
                return loading_problem(whole_config(block.text), self.folder / "fragment")
            case ("toml", "registry"):
                return registry_problem(block.text, self.folder / "registry.toml")
            case ("toml", "pyproject"):
                return _parsing_problem(tomllib.loads, block.text)
            case ("python", "signature"):
                return _raised(lambda: compile(block.text, block.where, "exec"), "SyntaxError: ")
            case ("python", _):
                return self._python_problem(block)
            case ("json", _):
                return _json_problem(block.text)
            case ("console", "run"):
                return self._run(block)
            case ("console", "list"):
                return self._list(block)
            case ("console", "check"):
                return _problem_of_commands(commands(block.text)) or None
            case ("console", "foreign"):
                return "it has a command of ours: run, list or check it" if OURS.search(block.text) else None
            case ("text", "output"):
                return self._output(block)
            case ("text", "drawing"):
                return _drawing_problem(block.text)
        raise AssertionError(block)

    def _file(self, block: Block) -> str | None:
        name = block.options["file"]
        self._write(name, block.text)
        match block.language:
            case "toml":
                return self._loading_problem(name)
            case "python":
                return self._python_problem(block)
            case "yaml":
                return _ci_problem(block.text)
            case _:
                return _json_problem(block.text)

    def _into(self, block: Block) -> str | None:
        name = block.options["into"]
        text = (self.folder / name).read_text(encoding="utf-8")
        self._write(name, with_tables(text, block.text))
        return self._loading_problem(name)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._as_served(text), encoding="utf-8")

    def _loading_problem(self, name: str) -> str | None:
        path = self.folder / name
        if path.name == "endpoints.toml":
            return registry_problem(path.read_text(encoding="utf-8"), path)
        if path.parent.name != "eval":
            return _parsing_problem(tomllib.loads, path.read_text(encoding="utf-8"))
        return _raised(lambda: load_entries(path, ()), "it does not load: ")

    def _python_problem(self, block: Block) -> str | None:
        """Run the code, which may import earlier files and, as in an eval, `osmosis_ai`; return its error, or None."""
        loaded = set(sys.modules)
        sys.path.insert(0, str(self.folder))
        try:
            with SdkShim().active():
                exec(compile(block.text, block.where, "exec"), {"__name__": "shown"})
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            sys.path.remove(str(self.folder))
            for name in set(sys.modules) - loaded:
                if str(getattr(sys.modules[name], "__file__", None)).startswith(str(self.folder)):
                    del sys.modules[name]
        return None

    def _run(self, block: Block) -> str | None:
        wanted = int(block.options.get("exit", "0"))
        for name, value in re.findall(r"^export (\w+)=(\S+)$", block.text, re.MULTILINE):
            self._env[name] = shlex.split(value)[0]
        status, printed = self._typed(block.text)
        self._printed = printed if status == wanted else None
        return None if status == wanted else f"exit {status} instead of {wanted}:\n{printed}"

    def _list(self, block: Block) -> str | None:
        typed = [without_environment(words) for words in commands(self._as_served(block.text))]
        if others := [words for words in typed if words[0] != "pytest"]:
            return f"only pytest lists tests: {others}"
        script = [sys.executable, "-c", LISTING, json.dumps([words[1:] for words in typed])]
        status, printed = self._subprocess(script)
        return None if status == 0 else printed

    def _output(self, block: Block) -> str | None:
        if self._printed is None:
            return "no `console run` before it, or a failed one"
        self.outputs.append((block, self._printed))
        return difference(block.text, self._printed) or None

    def _typed(self, text: str) -> tuple[int, str]:
        return self._subprocess(["bash", "-euc", self._as_served(text)])

    def _subprocess(self, words: Sequence[str]) -> tuple[int, str]:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self.deadline_s,
        )
        return done.returncode, self._as_on_the_page(done.stdout)

    def _as_served(self, text: str) -> str:
        for shown, served in self._addresses.items():
            text = text.replace(shown, served)
        return text

    def _as_on_the_page(self, text: str) -> str:
        for shown, served in self._addresses.items():
            text = text.replace(served, shown).replace(served.removesuffix("/v1"), shown.removesuffix("/v1"))
        text = re.sub(rf" at \S+ \(({'|'.join(OFFICIAL)})\)", "", text)
        return text.replace(str(self.folder), "~/evals")


def environment() -> dict[str, str]:
    """Return the commands' environment: the tools of this interpreter, and no key, option or plugin from outside."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return kept | {"COLUMNS": "100", **ONLY_OURS, "PYTHONDONTWRITEBYTECODE": "1"}


def with_tables(text: str, fragment: str) -> str:
    """Return a TOML in which the tables of `fragment` replace those of the same names."""
    replaced = set(re.findall(r"^\[+[^\]\n]+\]+", fragment, re.MULTILINE))
    parts = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    kept = [part for part in parts if part.partition("]")[0] + "]" not in replaced]
    return "".join(kept).rstrip() + "\n\n" + fragment


def whole_config(text: str) -> str:
    """Return a fragment with the tables that every config needs."""
    tables = tomllib.loads(text)
    missing = [f"[{table}]\n{keys}" for table, keys in LEAST.items() if table not in tables]
    return "\n".join([text, *([] if "experiment" in tables and "secrets" in tables else missing)])


def loading_problem(text: str, workspace: Path) -> str | None:
    path = workspace / "configs/eval/shown.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    rollouts = [f"rollouts/{name}" for name in re.findall(r'^rollout = "([^"]+)"', text, re.MULTILINE)]
    for folder in [*rollouts, *re.findall(r'^mcp = "([^"]+)"', text, re.MULTILINE)]:
        (workspace / folder).mkdir(parents=True, exist_ok=True)
        (workspace / folder / "main.py").touch()
    return _raised(lambda: load_entries(path, ()), "it does not load: ")


def registry_problem(text: str, path: Path) -> str | None:
    path.write_text(text, encoding="utf-8")
    return _raised(lambda: Registry.of(read_document(path)), "it does not load: ")


def _raised(call: Callable[[], object], before: str = "") -> str | None:
    """Return what a call raises, with a text before it, or None."""
    try:
        call()
    except Exception as error:
        return f"{before}{error}"
    return None


def _drawing_problem(text: str) -> str | None:
    missing = [
        name
        for name in re.findall(r"\b[a-z_]+/(?:[a-z_]+)?", text)
        if not any((REPOSITORY / "pytest_osmosis" / f"{name.removesuffix('/')}{end}").exists() for end in ("", ".py"))
    ]
    return f"no such module or room: {', '.join(missing)}" if missing else None


def _json_problem(text: str) -> str | None:
    if _parsing_problem(json.loads, text) is None:
        return None
    problems = [_parsing_problem(json.loads, line) for line in text.splitlines()]
    return next(filter(None, problems), None)


def _parsing_problem(parse: Callable[[str], object], text: str) -> str | None:
    return _raised(lambda: parse(text))


def _ci_problem(text: str) -> str | None:
    """Return the problems of a CI file's commands (GitHub's `run`, GitLab's `script`), or None."""
    typed = [line for script in _scripts(yaml.safe_load(text)) for line in commands(script)]
    if not any("pytest" in words for words in typed):
        return "no command runs pytest"
    return _problem_of_commands([words for words in typed if OURS.search(" ".join(words))]) or None


def _problem_of_commands(many: Sequence[list[str]]) -> str:
    return "; ".join(f"{shlex.join(words)}: {wrong}" for words in many if (wrong := problem(words)))


def _scripts(node: object) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in ("run", "script"):
                yield from [value] if isinstance(value, str) else value
            else:
                yield from _scripts(value)
    elif isinstance(node, list):
        for each in node:
            yield from _scripts(each)


def _copy_repository(folder: Path) -> None:
    """Copy what `make` needs of the repository, and link its virtual environment to this one."""
    for name in ("configs", "examples"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=LEFT_BEHIND)
    for name in ("Makefile", "pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, folder / name)
    for name in (".venv", *TESTPATHS):
        (folder / name).mkdir()
    for entry in Path(sys.prefix).iterdir():
        (folder / ".venv" / entry.name).symlink_to(entry)
    (folder / ".venv" / ".installed").touch()
