"""Secrets, and text that controls a terminal, on their way into a cassette and out of it."""

from __future__ import annotations

import json

from tests.hostile.workspaces import API_KEY, CONFIG, HostileWorkspace
from tests.servers import ChatServer, reply

CASSETTE = "cassettes/x.jsonl"
NASTY = "a\x1b[31mb\r\n::error::d \u202e##[error]e\x07"
ANOTHER_KEY = "sk-proj-Zk3vR8sQ1xT5yU7wB2nM4pL6aS9dF0gHjKqWeRtYuIoP"


def test_a_cassette_holds_no_secret(hostile: HostileWorkspace) -> None:
    hostile.secret("TEAM_TOKEN", "team/token+of.ours=7b1")
    with ChatServer(reply(f"the key is {API_KEY} {NASTY}")) as server:
        hostile.eval(
            rows=[{"user_prompt": f"repeat team/token+of.ours=7b1 {NASTY}"}],
            secrets={"required": ["TEAM_TOKEN"]},
            model={"base_url": server.base_url},
        )
        hostile.run(CONFIG, "--osmosis-record", "--osmosis-no-probe")
    text = (hostile.root / CASSETTE).read_text(encoding="utf-8")

    assert "the key is" in text
    assert "repeat " in text
    assert hostile.run(CONFIG, "--osmosis-replay").ret == 0, "the digest is that of the redacted request"


def test_a_cassette_with_a_key_is_refused_with_its_line(hostile: HostileWorkspace) -> None:
    with ChatServer(reply("42")) as server:
        hostile.eval(rows=2, model={"base_url": server.base_url})
        assert hostile.run(CONFIG, "--osmosis-record", "--osmosis-no-probe").ret == 0
    recorded = (hostile.root / CASSETTE).read_text(encoding="utf-8")
    for key in (ANOTHER_KEY, "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1B2c3D4e5" * 4):
        hostile.write(CASSETTE, recorded.replace('"42"', json.dumps(key)))

        result = hostile.run(CONFIG, "--osmosis-replay")

        assert result.ret == 4, key
        result.stderr.fnmatch_lines([f"ERROR: {CASSETTE}:2: *"])
        assert key not in result.stderr.str()
