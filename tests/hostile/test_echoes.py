"""Secrets in other shapes, and in places where nobody expects text: no message quotes them.

The search after each test decodes everything that was printed or written, also cassettes, and looks for the values.
"""

from __future__ import annotations

import base64
import html
import itertools
import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pytest

from tests.hostile.sweep import secrets
from tests.hostile.workspaces import API_KEY, CONFIG, PLAIN_AND_XDIST, HostileWorkspace
from tests.plugin.reports import Report
from tests.servers import Behaviour, ChatServer, body, completion, data, redirect, reply, status

KEY = "sk-Ab3/x+9.Zq_7&tail'of=it"
EIGHT = "aB3$eF7!"
BYTES = KEY.encode()
SHAPES = (
    KEY,
    json.dumps(json.dumps(KEY)),
    json.dumps(KEY).replace("/", "\\/"),
    html.escape(KEY),
    quote(KEY, safe=""),
    quote(quote(KEY)),
    f"https://user:{KEY}@host/v1",
    *(base64.b64encode(b"u:x"[:n] + BYTES).decode() for n in range(3)),
    *(base64.urlsafe_b64encode(b"u:x"[:n] + BYTES).decode() for n in range(3)),
    f" {EIGHT}\u00a0",
    f"x{EIGHT}x",
    base64.b64encode(EIGHT.encode()).decode(),
)
ALL = "\n--\n".join(SHAPES)
CLIENTS = ("light", "openai", "anthropic")


def _replies() -> list[Behaviour]:
    tool_call: Mapping[str, Any] = {
        "id": KEY,
        "type": "function",
        "function": {"name": KEY, "arguments": json.dumps({KEY: ALL})},
    }
    message = {"role": "assistant", "content": ALL, KEY: {quote(KEY): [ALL]}, "tool_calls": [tool_call]}
    return [
        *(reply(shape) for shape in SHAPES),
        data(completion(message, model=ALL, id=KEY, system_fingerprint=KEY)),
        data({"choices": [{"message": {"role": KEY, "content": None}, "finish_reason": KEY, KEY: KEY}], KEY: KEY}),
        data({"choices": KEY}),
        data({KEY: KEY, "error": {KEY: ALL}}),
        body(f'{{"choices": [{{"message": {KEY}'),
        body(ALL.encode()),
        body(f"<html>{html.escape(KEY)}</html>", content_type="text/html"),
        *(
            status(code, {"error": {"message": SHAPES[code % len(SHAPES)], "code": KEY}})
            for code in (400, 404, 418, 422)
        ),
        status(400, {"detail": [{KEY: ALL}]}),
        status(429, {"error": {"message": ALL, "type": KEY}}, retry_after=quote(KEY), x_request_id=quote(KEY)),
        redirect(f"http://user:{quote(KEY)}@127.0.0.1/{quote(quote(KEY))}?key={quote(KEY)}"),
    ]


def test_what_servers_echo_is_redacted(hostile: HostileWorkspace) -> None:
    hostile.secret("MY_KEY", KEY)
    hostile.secret("EIGHT", EIGHT)
    answers = {
        "echoes": _replies(),
        **{f"says-{code}": [status(code, {"error": {"message": ALL}})] for code in (401, 500)},
    }
    names = []
    with ExitStack() as stack:
        for client, (kind, replies) in itertools.product(CLIENTS, answers.items()):
            server = stack.enter_context(ChatServer(*replies))
            names.append(f"{client}-{kind}")
            hostile.eval(
                names[-1],
                rows=[{"score": 0.0}] * len(replies),
                model={"base_url": server.base_url, "api_key_env": "MY_KEY", "client": client, "max_retries": 0},
                experiment={"model_path": "m"},
                evaluation={"batch_size": 1},
                secrets={"required": ["EIGHT"]},
                limits={"max_errors": 1000},
            )
        result = hostile.run(
            *(f"--osmosis-config=configs/eval/{name}.toml" for name in names),
            "--osmosis-no-probe", "--junitxml=junit.xml", "--osmosis-markdown=page.md", "--json-report", "-rA",
        )  # fmt: skip
    assert result.ret in (1, 9)
    assert "[MY_KEY]" in result.stdout.str()
    for name in names:
        [run] = hostile.run_dirs(name)
        assert re.search(r"\[(MY_KEY|redacted)\]", (run / "results.json").read_text(encoding="utf-8")), name
    for client in CLIENTS:
        hostile.show_everything("row4-run0", "row4", of=hostile.run_dirs(f"{client}-echoes")[0].name)


AGENT = f"""
import asyncio, base64, logging, os, subprocess, sys, warnings
ALL = {ALL!r}
KEY = {KEY!r}

class Broken(Exception):
    def __init__(self):
        self.headers = {{"Authorization": "Bearer " + KEY}}
        super().__init__(self.headers, ALL.encode())

async def rollout(ctx):
    for char in KEY:
        print(char, end="", flush=True)
    print()
    sys.stdout.buffer.write(ALL.encode())
    logging.error("%s", {{KEY: ALL}})
    warnings.warn(ALL)
    subprocess.run(["sh", "-c", "echo $MY_KEY; echo $MY_KEY | base64 >&2"])
    os.write(2, KEY[:7].encode()); os.write(2, KEY[7:].encode())
    sys.__stderr__.write(ALL)
    if ctx.row_index == 1:
        raise Broken()
    if ctx.row_index == 2:
        raise ExceptionGroup(KEY, [Broken(), KeyError(KEY)])
    if ctx.row_index == 3:
        os.write(2, ("x" * 3_000_000 + KEY + "y" * 9_000_000).encode())
        print("x" * (32 * 1024 - 9) + KEY + "y" * 200_000 + KEY + "z" * (32 * 1024 - 11))
    return [{{"role": "assistant", "content": ALL, KEY: KEY}}]
"""
CRASHES = """
import faulthandler, os

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    if extra_info["score"] == 0.5:
        os.write(2, os.environ["MY_KEY"].encode())
        os._exit(7)
    return extra_info["score"]
"""


@PLAIN_AND_XDIST
def test_what_user_code_prints_and_raises_is_redacted(hostile: HostileWorkspace) -> None:
    hostile.secret("MY_KEY", KEY)
    hostile.secret("EIGHT", EIGHT)
    hostile.eval(
        rows=[{"score": 0.0}, {}, {}, {}, {"score": 0.5}],
        agent={"agent": "agents:rollout"},
        secrets={"required": ["MY_KEY", "EIGHT"]},
        limits={"max_errors": 1000},
    )
    hostile.write("agents.py", AGENT)
    hostile.write("rewards.py", CRASHES)
    result = hostile.run(CONFIG, "--junitxml=junit.xml", "-rA", "-vv")
    assert result.ret in (1, 9)
    assert "[MY_KEY]" in result.stdout.str()


def test_an_inline_eval_redacts_too(hostile: HostileWorkspace) -> None:
    hostile.secret("MY_KEY", KEY)
    hostile.eval(rows=[{"score": 0.0}, {"reward": "raises"}], secrets={"required": ["MY_KEY"]})
    hostile.write(
        "rewards.py",
        "import os\n"
        "def score(solution_str, ground_truth, extra_info=None, **kwargs):\n"
        "    key = os.environ['MY_KEY']\n"
        "    print(key, repr(key), '::error::x')\n"
        "    if extra_info.get('reward'):\n        raise ValueError(key)\n"
        "    return 0.0\n",
    )
    assert hostile.run(CONFIG, "--osmosis-inline", "--junitxml=junit.xml", "-rA").ret in (1, 9)


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


TELLS = """
import os
from pytest_osmosis import AgentWorkflowOutput

async def rollout(ctx):
    secret = os.environ["TOLD_SECRET"]
    reply = await ctx.chat(ctx.prompt)
    print(secret)
    call = {"id": secret, "type": "function", "function": {"name": "tell", "arguments": '{"secret": "%s"}' % secret}}
    messages = [
        *ctx.prompt,
        {"role": "assistant", "content": secret, "reasoning_content": secret, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": secret, "content": secret[:13] + "\\\\n" + secret[13:]},
        reply.message,
    ]
    if ctx.run_index:
        raise ValueError(secret)
    return AgentWorkflowOutput(messages, metrics={secret: 1.0}, info={secret: [secret]})
"""
REWARDS = """
import os

def score(solution_str, ground_truth, **kwargs):
    return {"score": 0.0, "reason": os.environ["TOLD_SECRET"], "metrics": {os.environ["TOLD_SECRET"]: 1.0}}
"""


def test_a_report_holds_no_secret(hostile: HostileWorkspace) -> None:
    hostile.secret("TOLD_SECRET", "hunter2-Zx81-correct-horse")
    hostile.write("agent.py", TELLS)
    hostile.eval(
        rows=[{"user_prompt": "What is 2 * 3?"}],
        evaluation={"n": 2},
        agent={"agent": "agent:rollout"},
        secrets={"required": ["TOLD_SECRET"]},
    )
    hostile.write("rewards.py", REWARDS)
    hostile.run("--osmosis-config=configs/eval/x.toml", "--osmosis-html=session.html")
    made = hostile.cli("html", "latest", "-o", "command.html")
    assert made.ret == 0

    for name in ("session.html", "command.html"):
        report = Report(hostile.root / name)
        packed = report.everything().removeprefix(report.html)
        assert "2 * 3" in packed
        assert list(secrets(packed.encode(), hostile.secrets)) == [], name


TOKEN = "team/token+of.ours=7b1"
HEADER = "header-secret-of-ours"
LONG = "eyJhbGciOi." + "Zm9vYmFyYmF6cXV4" * 30


TELLS_EVERYTHING = """
import os, sys, logging, warnings
print(os.environ['TEAM_TOKEN'], file=sys.stderr)

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    print(os.environ['GROQ_API_KEY'], end='\\n::error::')
    logging.error(os.environ['LONG_TOKEN'])
    warnings.warn(os.environ['OPENAI_API_KEY'])
    os.system('echo $TEAM_TOKEN')
    if extra_info.get('reward'):
        raise ValueError({name: os.environ[name] for name in ('TEAM_TOKEN', 'LONG_TOKEN', 'OPENAI_API_KEY')})
    return 0.0
"""


@pytest.fixture
def guarded(hostile: HostileWorkspace) -> HostileWorkspace:
    """A workspace with three more secrets: named by the config, very long, and a provider's that nobody names."""
    hostile.secret("TEAM_TOKEN", TOKEN)
    hostile.secret("LONG_TOKEN", LONG)
    hostile.secret("GROQ_API_KEY", "gsk_nobody_names_this_one_0451")
    return hostile


BROKEN = f"""
[experiment]
model_path = "{API_KEY}"
dataset = "{API_KEY}"
commit_sha = "{TOKEN}"
[evaluation]
n = "{API_KEY}"
batch_size = ["{TOKEN}", "gsk_nobody_names_this_one_0451"]
pass_threshold = "{LONG}"
{API_KEY} = 1
["{TOKEN}"]
x = 1
[model]
base_url = "ftp://user:{API_KEY}@host"
api_key_env = "TEAM_TOKEN"
client = "{API_KEY}"
headers = {{Authorization = "Bearer {HEADER}", X = 3}}
[sampling]
stop = {{a = "{TOKEN}"}}
temperature = "bearer {HEADER}"
[scoring]
eval_fns = ["{API_KEY}"]
decide = "{TOKEN}"
[gate]
pass_rate = "{API_KEY}"
[secrets]
required = ["LONG_TOKEN", "{API_KEY}"]
"""


def test_problems_of_a_config_do_not_quote_secrets(guarded: HostileWorkspace) -> None:
    guarded.secrets["header"] = HEADER
    guarded.write("configs/eval/x.toml", BROKEN)
    result = guarded.run(CONFIG, f"--osmosis-n={API_KEY}", f"--osmosis-set=evaluation.limit={TOKEN}", exits=4)
    assert "[OPENAI_API_KEY]" in result.stderr.str()
    guarded.write("configs/eval/x.toml", BROKEN + f'\n{TOKEN} = = "{API_KEY}"\n')
    guarded.run(CONFIG, exits=4)
    guarded.run(f"--osmosis-config={API_KEY}.toml", exits=4)
    guarded.run(CONFIG, f"--osmosis-max-in-flight={API_KEY}", f"--osmosis-from={API_KEY}", exits=4)


def test_problems_of_rows_do_not_quote_secrets(guarded: HostileWorkspace) -> None:
    guarded.eval(secrets={"required": ["TEAM_TOKEN", "LONG_TOKEN"]})
    rows = [
        {"user_prompt": 1, "ground_truth": API_KEY, TOKEN: API_KEY},
        {"user_prompt": [API_KEY]},
        {"user_prompt": {TOKEN: LONG}},
        {"messages": [{"role": API_KEY, "content": 3}]},
        {"messages": API_KEY},
    ]
    lines = [json.dumps(row) for row in rows]
    guarded.write("data/x.jsonl", "\n".join([*lines, f'{{"user_prompt": "{API_KEY}', f"{TOKEN} {LONG}"]) + "\n")
    assert guarded.run(CONFIG).ret == 4
    guarded.eval("y", data={"path": "data/y.csv", "columns": {"user_prompt": API_KEY}})
    guarded.write("data/y.csv", f"{API_KEY},{TOKEN}\n1,2,3,{API_KEY}\n")
    assert guarded.run("--osmosis-config=configs/eval/y.toml").ret == 4


def test_header_summary_and_reports_do_not_quote_secrets(guarded: HostileWorkspace) -> None:
    """The values are where they are valid: the eval runs, and its text goes everywhere."""
    guarded.eval(
        rows=[{"user_prompt": f"What is 1 * 2? {API_KEY}", "ground_truth": TOKEN, "score": 0.0}, {"reward": "raises"}],
        secrets={"required": ["TEAM_TOKEN", "LONG_TOKEN"]},
        sampling={"stop": [API_KEY], "extra_body": {"a": TOKEN, LONG: "x"}},
        experiment={"model_path": "demo/arithmetic"},
        env={"SOME_VALUE": "plain"},
    )
    guarded.write("rewards.py", TELLS_EVERYTHING)
    result = guarded.run(
        CONFIG, "--osmosis-markdown=page.md", "--junitxml=junit.xml", "-rA", f"--osmosis-set=sampling.seed={7}"
    )
    assert result.ret == 9
    assert "[GROQ_API_KEY]" in result.stdout.str()
    guarded.show_everything("row0-run0", "row1-run0")
    assert guarded.run("--osmosis-from=latest", f"--osmosis-pass-threshold={API_KEY}").ret == 4


@pytest.mark.parametrize("hostile", [["-n2"]], indirect=True)
def test_workers_do_not_pass_secrets_on(guarded: HostileWorkspace) -> None:
    guarded.secrets["header"] = HEADER
    with ChatServer(reply(f"the key is {API_KEY} or {TOKEN.upper()} {TOKEN}")) as server:
        guarded.eval(
            rows=[{"score": 0.0}, {"score": 1.0}],
            model={"base_url": server.base_url, "api_key_env": "TEAM_TOKEN", "headers": {"X-Api-Token": HEADER}},
            experiment={"model_path": "m"},
        )
        assert guarded.run(CONFIG, "--junitxml=junit.xml").ret == 1


def test_a_secrets_file_is_never_quoted(guarded: HostileWorkspace) -> None:
    guarded.secrets |= {"FILE_ONLY": "in-the-file-alone-1", "OTHER": "named-by-nobody-22"}
    guarded.write(".env", "FILE_ONLY=in-the-file-alone-1\nOTHER='named-by-nobody-22'\nbroken in-the-file-alone-1\n")
    guarded.eval(secrets={"required": ["FILE_ONLY", "MISSING"]}, gate={"pass_rate": "named-by-nobody-22"})
    assert guarded.run(CONFIG, "--osmosis-secrets-file=.env", "--osmosis-n=in-the-file-alone-1").ret == 4
    given = b"FILE_ONLY=in-the-file-alone-1\nOTHER=named-by-nobody-22\n"
    assert guarded.run(CONFIG, "--osmosis-secrets-file=-", "--osmosis-n=named-by-nobody-22", stdin=given).ret == 4


@pytest.mark.addon
def test_tests_over_rollouts_do_not_quote_secrets(guarded: HostileWorkspace) -> None:
    guarded.eval(rows=[{"solution_str": f"{API_KEY} ##[error] \x1b[31m", "extra": TOKEN}] * 2, secrets={"required": []})
    guarded.write("configs/eval/broken.toml", BROKEN)
    guarded.write(
        "test_it.py",
        "import pytest\n"
        "@pytest.mark.osmosis_eval('configs/eval/x.toml', limit=1)\n"
        "def test_answer(rollout):\n"
        "    assert rollout.solution_str == 'other'\n"
        "@pytest.mark.osmosis_eval('configs/eval/broken.toml')\n"
        "def test_broken(rollout):\n    pass\n",
    )
    result = guarded.run("test_it.py", "--continue-on-collection-errors", "--junitxml=junit.xml")
    assert result.ret in (1, 2)
    guarded.run("test_it.py", "--osmosis-source=model", "--continue-on-collection-errors")


def test_a_baseline_with_a_secret_in_its_settings_does_not_differ(guarded: HostileWorkspace) -> None:
    guarded.eval(
        rows=[{"score": 1.0}] * 6,
        sampling={"stop": [API_KEY]},
        baseline={"results": "base.json"},
        gate={"max_regression": 0.5},
    )
    assert guarded.run(CONFIG, "--osmosis-update-baseline").ret == 0
    result = guarded.run(CONFIG)
    assert result.ret == 0
    assert "differs" not in result.stdout.str()
