"""The search itself finds what is planted in every shape, and nothing in what is clean."""

from __future__ import annotations

import base64
import html
import json
import os
import subprocess
import sys
from urllib.parse import quote

from benchmarks.memory import PeakMemory, descendants, proportional_mb
from tests.hostile.sweep import control_sequences, secrets
from tests.hostile.workspaces import API_KEY, HostileWorkspace
from tests.plugin.workspaces import wait_until

KEY = 'pa/ss+wo"rd&1=é?'
BYTES = KEY.encode()
CONTROLS = (
    *("\x1b[31mred", "a\rb", "bell\a", "\x9b31m", "\x00", "\u202eevil", "\u2066x", "a\u200bb", "\u2028", "\ufeff"),
    *("\U000e0041", "e" + "\u0301" * 30),
)
COMMANDS = (
    *(
        "::error::x",
        "  ::set-output name=a::b",
        "\u3000::warning file=a,line=1::b",
        "a\n\t::add-mask::x",
        "a\r::debug::",
    ),
    *("a ##[error]x", "##[set-env name=a;]b", "x ##vso[task.setvariable variable=a]b", "##VSO[task.complete]"),
    *("b ##teamcity[buildStop comment='']", "section_start:1:a\r\x1b[0K", "section_end:12:a.b[x=y]\r\x1b[0K"),
)
SHAPES = {
    "as it is": KEY,
    "in JSON": json.dumps(KEY),
    "in JSON within JSON": json.dumps(json.dumps(KEY).replace("/", "\\/")),
    "every letter in JSON": "".join(f"\\u{ord(char):04X}" for char in KEY),
    "in Python": ascii(KEY),
    "in HTML": html.escape(KEY),
    "every letter in HTML": "".join(f"&#{ord(char)};" for char in KEY),
    "in HTML, in JSON": json.dumps("".join(f"&#x{ord(char):x};" for char in KEY)).replace("&", "\\u0026"),
    "in a URL": quote(KEY, safe=""),
    "in a URL, lower case": "".join(f"%{byte:02x}" for byte in BYTES),
    **{f"base64 after {n} bytes": base64.b64encode(b"a:b"[:n] + BYTES).decode() for n in range(4)},
    **{f"base64url after {n} bytes": base64.urlsafe_b64encode(b"a:b"[:n] + BYTES).decode() for n in range(4)},
    "base64 in a URL": quote(base64.b64encode(BYTES).decode(), safe=""),
}


def test_planted_control_sequences_and_commands_are_found() -> None:
    texts = {text: f"before\n{text}\nafter\n".encode("utf-8", "surrogatepass") for text in (*CONTROLS, *COMMANDS)}
    assert [text for text, content in texts.items() if not list(control_sequences(content))] == []
    assert list(control_sequences(b"\x9b31m")), "bytes that are no text"
    found = {text: "\n".join(control_sequences(text.encode())) for text in COMMANDS}
    assert [text for text, problems in found.items() if "workflow command" not in problems] == []


def planted(value: str) -> list[str]:
    """Return the shapes in which the value is found."""
    texts = {shape: f"before {text} after\n".encode() for shape, text in SHAPES.items()}
    return [shape for shape, content in texts.items() if list(secrets(content, {"PLANTED": value}))]


def test_a_planted_secret_is_found_in_every_shape_and_another_in_none() -> None:
    assert (planted(KEY), planted(API_KEY)) == (list(SHAPES), [])


def test_memory_of_descendants_is_counted() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(80_000_000); input()'])"
    with PeakMemory(lambda: descendants(os.getpid()), proportional_mb) as memory:
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
            wait_until(lambda: memory.peak_mb > 70, "the grandchild's 80 MB")
            process.communicate()


def test_the_search_covers_every_kind_of_file(hostile: HostileWorkspace) -> None:
    """A secret in each file would be found: this test plants one in a copy of each."""
    hostile.eval(rows=[{"score": 0.0}], env={"A": "b"})
    hostile.write("rewards.py", "print('at import')\n" + (hostile.root / "rewards.py").read_text())
    hostile.run(
        "--osmosis-config=configs/eval/x.toml", "--junitxml=junit.xml", "--osmosis-markdown=page.md",
        "--json-report", "--json-report-file=report.json", "--osmosis-output=out.json",
    )  # fmt: skip
    names = {artefact.name.rpartition("/")[2] for artefact in hostile.artefacts()}
    wanted = {"journal.jsonl", "manifest.json", "results.json", "host.log", "junit.xml", "page.md", "report.json"}
    assert wanted | {"out.json", "lastfailed", "stdout of command 1", "stderr of command 1"} <= names
    assert "rewards.py" not in names
    for artefact in hostile.artefacts():
        assert list(secrets(artefact.content + API_KEY.encode(), hostile.secrets)), artefact.name
