"""No secret is in a report, in whatever it packs: conversations, the index, the summary."""

from __future__ import annotations

from tests.hostile.sweep import secrets
from tests.hostile.workspaces import HostileWorkspace
from tests.plugin.reports import Report

SECRET = "hunter2-Zx81-correct-horse"
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
    hostile.secret("TOLD_SECRET", SECRET)
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
