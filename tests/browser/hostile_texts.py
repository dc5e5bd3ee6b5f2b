"""Texts that would act in a browser if anything but text nodes held them, and a real eval run that has them everywhere.

Each would ask the canary, open a dialog, or set the global `acted`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.plugin.workspaces import Shell, Workspace

ACT = "window.acted=1"


def texts(canary: str) -> list[str]:
    """Return the texts; their requests go to `canary`."""
    return [
        f"<script>{ACT};fetch('{canary}/script')</script>",
        f"</script><script>{ACT}</script>",
        f"--></textarea></title></style></script><svg onload={ACT}>",
        "<!--<script>",
        "<![CDATA[ ]]> ]]> -->",
        f"<img src={canary}/image onerror={ACT}>",
        f"<img src=x onerror=alert(1)>\"'`><b onmouseover={ACT}>bold</b>",
        f"<iframe srcdoc='<script>parent.acted=1</script>'></iframe><iframe src={canary}/frame></iframe>",
        f"<svg><use href='{canary}/use#x'/><animate onbegin={ACT} attributeName=x dur=1s></svg>",
        f"<link rel=stylesheet href={canary}/style><style>@import '{canary}/import';</style>",
        f"<meta http-equiv=refresh content='0;url={canary}/refresh'><base href={canary}/>",
        f"<form action={canary}/form><button autofocus onfocus={ACT}>send</button></form>",
        f"<details open ontoggle={ACT}><summary>more</summary></details>",
        f"<math><mtext></mtext><mglyph><style></math><img src onerror={ACT}></style></mglyph></math>",
        f"[a link](javascript:{ACT}) [another](data:text/html,<script>parent.acted=1</script>)",
        f"![image]({canary}/markdown) <{canary}/autolink> [reference][r]\n\n[r]: {canary}/reference 'title'",
        f"[x](<javascript:{ACT}>) [y](JaVaScRiPt:{ACT}) [z](java\tscript:{ACT}) [v](vbscript:x)",
        f"```html\n<script>{ACT}</script>\n```\n| <b>a</b> | <img onerror={ACT}> |\n|---|---|\n| `</code>` | *x* |",
        "${constructor.constructor('window.acted=1')()} {{constructor.constructor('window.acted=1')()}}",
        f"javascript:{ACT}//\"onclick='{ACT}'",
        "&lt;script&gt; &amp;amp; &#x3c;img src=x&#62; &nbsp;",
        "def __init__(self): *args, **kwargs; a_b_c # not emphasis, `code`",
        "__proto__ constructor toString hasOwnProperty __defineGetter__",
        "行内的文本、全角\uff1cscript\uff1e和 \U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301",
        "  leading and   inner   blanks\n\ttabs\n\n\n three empty lines  ",
    ]


SHOWN_AS_ESCAPES = (
    "\x00",
    "\x1b[31mred\x1b[0m \x07 \x08",
    "\u202eevil\u2066 \u2067 \u2069 \u061c \u200f",
    "\ufeff \u200b \u2028 \u2029 \x85 \x9b",
)
"""Texts with characters that readers would not see, or that change the order of others."""
ROW_OF_ESCAPES = range(len(texts("")), len(texts("")) + len(SHOWN_AS_ESCAPES))

AGENT = """
import sys

async def rollout(ctx):
    row = ctx.metadata
    text = row["text"]
    await ctx.chat([{"role": "user", "content": "What is 2 * 3?"}])
    print(text)
    print(text, file=sys.stderr)
    call = {"id": text, "type": "function", "function": {"name": text, "arguments": text}}
    json_call = {"id": "c2", "type": "function", "function": {"name": "look_up", "arguments": row["arguments"]}}
    image = {"type": "image_url", "image_url": {"url": text}}
    calls = [call, json_call]
    messages = [
        *ctx.prompt,
        {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": calls, "name": text},
        {"role": "tool", "tool_call_id": text, "name": text, "content": text},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": text}]},
        {"role": "assistant", "content": [{"type": "text", "text": text}, image]},
        {"role": "assistant", "content": text},
    ]
    if ctx.run_index == 1:
        raise ValueError(text)
    from pytest_osmosis import AgentWorkflowOutput
    return AgentWorkflowOutput(messages, metrics={text[:80]: 1.5}, info={text: [text, {text: text}]})
"""
REWARDS = """
def score(solution_str, ground_truth, extra_info=None, **kwargs):
    text = extra_info["text"]
    print(text)
    if extra_info["row"] % 5 == 4:
        raise ZeroDivisionError(text)
    return {"score": 0.25, "reason": text, "metrics": {text[:80]: 2.0}}
"""
NAME = "x"


def hostile_run(root: Path, canary: str) -> Path:
    """Return the directory of a real eval run: row k has text k in each of its fields, and its run 1 raises it."""
    every = [*texts(canary), *SHOWN_AS_ESCAPES]
    workspace = Workspace(Shell(root), [])
    workspace.write("agent.py", AGENT)
    workspace.write("rewards.py", REWARDS)
    rows: list[dict[str, Any]] = [
        {
            "system_prompt": text,
            "user_prompt": f"Row {row}: {text}",
            "ground_truth": text,
            "text": text,
            "row": row,
            "arguments": json.dumps({text: text, "nested": [{"a": text}]}),
            f"<b>{ACT}</b>": every[row % 2],
        }
        for row, text in enumerate(every)
    ]
    workspace.eval(
        NAME,
        rows,
        evaluation={"n": 2},
        agent={"agent": "agent:rollout"},
        limits={"max_errors": 999},
        scoring={"eval_fns": ["rewards:score"]},
        gate={"pass_rate": ">= 0.5"},
    )
    # A process, because the event loop of the browser is in this one.
    result = workspace.run_process(f"--osmosis-config=configs/eval/{NAME}.toml", "-q", "--color=no")
    assert result.ret in (1, 9), result.stdout.str() + result.stderr.str()
    return workspace.run_dirs(NAME)[-1]
