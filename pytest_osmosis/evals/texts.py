"""Texts of a config that may stand in a file of their own: rubrics and system prompts."""

from __future__ import annotations

from pathlib import Path

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.config.rules import text_file
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.files.reading import FileFault, read_text
from pytest_osmosis.text.names import shown

MOST_BYTES = 1 << 20
"""The largest file with a text."""


def text_or_file(workspace: Path, text: str, where: str, key: str) -> str:
    """Return the text of a key like "[scoring] rubric", which may be the path of a file. Raises `ConfigError`."""
    path = text_file(workspace, text)
    if path is None:
        return text.strip()
    try:
        found = read_text(path, most_bytes=MOST_BYTES).strip()
    except FileFault as fault:
        raise ConfigError([Problem(where, f"{key}: {shown(path)} {fault}")]) from None
    if not found:
        raise ConfigError([Problem(where, f"{key}: {shown(path)} is empty; write the {key.split()[-1]} into it")])
    return found


def system_prompt(config: EvalConfig) -> str | None:
    """Return the system prompt of all rows, None if rows have their own. Raises `ConfigError`."""
    prompt = config.agent.prompt
    return None if prompt is None else text_or_file(config.workspace, prompt, shown(config.path), "[agent] prompt")
