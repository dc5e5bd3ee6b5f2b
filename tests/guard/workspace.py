"""The workspace of the guard: an eval in which half of the rows pass, scored in the host and in the scorer."""

from __future__ import annotations

import json
from pathlib import Path

SECRETS = {"GUARD_TOKEN": "token-of-the-guard"}
CONFIG = """
[experiment]
model_path = "demo/arithmetic"
[agent]
agent = "agent:rollout"
[data]
path = "rows.jsonl"
offset = 100
[evaluation]
batch_size = 2
[scoring]
eval_fns = ["rewards:exact", "rewards:blocking"]
decide = "rewards:exact"
[secrets]
required = ["GUARD_TOKEN"]
"""
AGENT = """
async def rollout(ctx):
    print("asks")
    reply = await ctx.chat(ctx.prompt)
    return [*ctx.prompt, reply.message]
"""
REWARDS = """
async def exact(solution_str, ground_truth, extra_info):
    return float(solution_str.endswith(ground_truth))

def blocking(solution_str, ground_truth, extra_info):
    return 1.0
"""


def write_workspace(folder: Path, rows: int) -> Path:
    """Write an eval of `rows` rows, numbered from 100 on, since longer numbers make more bytes. Return its config."""
    config = folder / "configs/eval/x.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(CONFIG, encoding="utf-8")
    (folder / "agent.py").write_text(AGENT, encoding="utf-8")
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    lines = ({"user_prompt": "What is 17 * 23?", "ground_truth": str(391 + row % 2)} for row in range(100 + rows))
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return config
