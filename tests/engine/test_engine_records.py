"""The files of an eval: the journal leads to the records, and no file contains a secret value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.run_record import fold
from tests.engine.evaluating import Workspace, evaluated
from tests.servers import ChatServer, by_row, reply, status

SECRET = 'sk-"very"\\secret-välue'
HEADER = "header-value-1234567890"
PLAIN = "plain-secret-value"


def test_a_journal_with_every_event_folds_to_the_ledger_even_if_torn(workspace: Workspace) -> None:
    """Retries, failures, crashes, reward errors and a removed sample; `evaluated` compares the two."""
    workspace.agent(
        """
        async def rollout(ctx):
            if ctx.row_index == 1:
                os._exit(3)
            if ctx.row_index == 2:
                raise ValueError("no")
            await ctx.chat(ctx.prompt)
        """
    )
    workspace.write(
        "rewards.py",
        """
        def exact(solution_str, extra_info):
            return 1 / (extra_info["user_prompt"] != "row 3")
        async def other(solution_str):
            return 0.5
        """,
    )
    names = {"eval_fns": ["rewards:exact", "rewards:other"]}
    with ChatServer(by_row({0: [status(503, retry_after="0.01"), reply("42")]}, reply("42"))) as server:
        live = evaluated(workspace.config(server, scoring=names))
    path = live.run.directory.journal
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[-1][:-5])
    assert fold(replay(path)) == live.run.engine.ledger
    assert [record.status for record in live.results.records] == ["finished", "failed", "failed", "finished"]


def secrets_config(workspace: Workspace, server: ChatServer) -> Mapping[str, Any]:
    return {
        "model": {
            "base_url": server.base_url,
            "api_key_env": "MODEL_KEY",
            "headers": {"X-Api-Token": HEADER, "X-Trace": "shown"},
        },
        "secrets": {"required": ["MY_SECRET", "OTHER_SECRET"]},
    }


def test_no_secret_value_is_in_any_file_of_a_run(workspace: Workspace) -> None:
    """It is printed, logged, warned of, sent to and by a model, raised, written raw and by a subprocess, and nested.

    It is in the dataset too, in a row whose host dies before it can send anything.
    """
    prompts = ["row 0", "row 1", f"row 2 {PLAIN}", "row 3"]
    workspace.rows([{"user_prompt": prompt} for prompt in prompts])
    workspace.agent(
        """
        import json, logging, warnings
        async def rollout(ctx):
            secret = os.environ["MY_SECRET"]
            for each in (secret, os.environ["OTHER_SECRET"], os.environ["MODEL_KEY"]):
                print("print", each)
                logging.getLogger("mine").warning("log %s", each)
                warnings.warn("warning " + each)
                os.write(2, ("raw " + each + chr(10)).encode())
                subprocess.run(["sh", "-c", 'echo "echo $1" >&2; echo "$1"', "sh", each], check=True)
                sys.__stderr__.write("dunder " + each)
            call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"k": secret})}}
            if ctx.row_index == 1:
                raise ValueError("raised " + secret)
            if ctx.row_index == 2:
                os._exit(1)
            if ctx.row_index == 3:
                await ctx.chat([{"role": "user", "content": secret}])
                return [{"role": "assistant", "content": "42", "tool_calls": [call], secret: [secret]}]
            await ctx.chat([{"role": "user", "content": secret}])
        """
    )
    workspace.write(
        "rewards.py",
        """
        import os
        def exact(solution_str, ground_truth):
            raise ValueError("scored " + os.environ["MY_SECRET"])
        """,
    )
    environ = {"MY_SECRET": SECRET, "OTHER_SECRET": PLAIN, "MODEL_KEY": "model-key-0123456789"}
    with ChatServer(reply(f"you said {SECRET} and {PLAIN}")) as server:
        live = evaluated(workspace.config(server, **secrets_config(workspace, server)), environ=environ)
        assert server.requests[0].headers["x-api-token"] == HEADER
    forms = [SECRET, json.dumps(SECRET)[1:-1], json.dumps(json.dumps(SECRET))[3:-3], PLAIN, HEADER]
    forms.append(environ["MODEL_KEY"])
    for name, text in live.run_files().items():
        assert [form for form in forms if form in text] == [], name
    for _, outcome in live.told:
        shown = json.dumps(outcome.to_json(), ensure_ascii=False)
        assert [form for form in forms if form in shown] == []
    assert "[MY_SECRET]" in live.outcome(1).text
    assert "row 2 [OTHER_SECRET]" in live.outcome(2).text
    assert "echo [OTHER_SECRET]" in live.run_files()["host.log"]
    assert "X-Trace" in live.run_files()["manifest.json"]


def test_secret_values_that_equal_words_of_the_journal_break_nothing(workspace: Workspace, server: ChatServer) -> None:
    """Here "rollout", "messages" and numbers are secrets."""
    names = {"A_SECRET": "messages", "B_SECRET": "provider", "C_SECRET": "finished", "D_SECRET": "rewards:exact"}
    workspace.agent("async def rollout(ctx):\n    print('messages')\n    await ctx.chat(ctx.prompt)\n")
    live = evaluated(workspace.config(server, secrets={"required": list(names)}), environ=names)
    assert live.kinds() == ["passed"] * 4
    assert dict(live.outcome(0).sections)["stdout"] == "[A_SECRET]\n"
