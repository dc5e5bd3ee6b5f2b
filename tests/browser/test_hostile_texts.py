"""Hostile texts in every field are shown as they are, and nothing else: in a report, and in any host.

Each text would act in a browser if anything but text nodes held it: ask the canary, open a dialog, or set the global
`acted`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.canary import Canary
from tests.browser.pages import Pages
from tests.browser.viewed import write_report
from tests.cli.dashboards import dashboard as dashboard_of
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


FOREIGN = """
() => {
  const found = [];
  if (window.acted !== undefined) found.push("the global `acted` is set");
  const tags = "script, iframe, frame, object, embed, img, video, audio, style, link, base, meta, form, math, marquee";
  for (const each of document.body.querySelectorAll(tags))
    if (!(each.localName === "script" && (each.id || each === document.querySelector("body > script:not([id])"))))
      found.push(`<${each.localName}>`);
  for (const each of document.querySelectorAll("*"))
    for (const { name, value } of each.attributes) {
      if (/^on|^srcdoc$|^formaction$/i.test(name)) found.push(`${each.localName} ${name}=${value}`);
      const isAddress = /^(href|src|action|xlink:href|data|poster)$/i.test(name);
      if (isAddress && !/^(#|https?:\\/\\/|app\\.|data:image\\/svg)/.test(value))
        found.push(`${each.localName} ${name}=${value}`);
    }
  return found;
}
"""
"""Returns what is in a page that only text of others can have put there."""
OPEN_ALL = """
() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  for (const each of document.querySelectorAll("[aria-expanded=false]:not([aria-haspopup])")) each.click();
}
"""
ASSIGN = """
() => ["innerHTML", "outerHTML"].map((name) => {
  try { document.querySelector("main")[name] = "<b>x</b>"; return "allowed"; } catch (error) { return error.name; }
})
"""
CONVERSATION = "article.conversation"
FEWEST_PLACES = 9
"""The messages, the answer, the call and its result, the reason, the output: each shows the text of its row."""


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory, canary_server: Canary) -> Path:
    """The directory of an eval run with hostile texts, in a folder that has one for a name."""
    root = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=acted=1>"
    root.mkdir()
    return hostile_run(root, canary_server.url)


@pytest.fixture(scope="session")
def report(hostile: Path) -> Path:
    return write_report(hostile.parents[2], hostile.parents[2] / "report.html", [hostile.name])


def conversation(page: Page, name: str, run: str, query: str = "") -> str:
    """Go to a conversation, open all that is folded, and return its text."""
    page.evaluate("(address) => { location.hash = address }", f"#/run/{name}/{run}{query}")
    expect(page).to_have_title(re.compile(rf"\b{run}\b"))
    shown = page.locator(CONVERSATION)
    shown.locator(".messages").wait_for(state="attached")
    page.evaluate(OPEN_ALL)
    return shown.evaluate("(element) => element.textContent") or ""


def test_a_report_shows_texts_as_they_are(pages: Pages, report: Path, hostile: Path, canary: Canary) -> None:
    page = pages.open(report.as_uri())
    page.get_by_role("grid").or_(page.get_by_role("table")).first.wait_for()
    assert page.evaluate(FOREIGN) == []
    for row, text in enumerate(texts(canary.url)):
        shown = conversation(page, hostile.name, f"row{row}-run0")
        assert shown.count(text) >= FEWEST_PLACES, (row, text, shown)
        failed = conversation(page, hostile.name, f"row{row}-run1")
        assert f"ValueError: {text}" in failed, (row, text, failed)
        conversation(page, hostile.name, f"row{row}-run0", "?text=markdown")
        assert page.evaluate(FOREIGN) == []
    assert not pages.faults
    assert page.evaluate(ASSIGN) == ["TypeError", "TypeError"]
    assert all("TrustedHTML" in each for each in pages.faults.refused)
    pages.faults.refused.clear()


def test_characters_that_nobody_sees_are_shown_as_escapes(pages: Pages, report: Path, hostile: Path) -> None:
    page = pages.open(report.as_uri())
    for row in ROW_OF_ESCAPES:
        for run in ("run0", "run1"):
            shown = conversation(page, hostile.name, f"row{row}-{run}")
            assert not re.search(
                "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]", shown
            )
            assert re.search(r"\\x[01]|\\u20|\\ufeff", shown)


def test_a_folder_whose_name_is_no_text_hides_no_other(pages: Pages, hostile: Path, tmp_path: Path) -> None:
    runs = tmp_path / ".osmosis/runs"
    for name in (b"fine", b"bad\xff"):
        shutil.copytree(hostile, runs / os.fsdecode(name))
    with dashboard_of(tmp_path, "--no-open") as dashboard:
        page = pages.open(dashboard.address(), server=dashboard.server)
        expect(page.get_by_role("link", name="fine")).to_be_visible()
        page.close()  # before the dashboard, for which it would ask


@pytest.mark.parametrize("sandbox", ["allow-scripts", ""])
def test_a_report_works_in_a_sandbox(pages: Pages, report: Path, tmp_path: Path, sandbox: str) -> None:
    """Hosts of files show them in frames without an origin: storage throws there."""
    host = tmp_path / "host.html"
    host.write_text(f'<iframe sandbox="{sandbox}" src="{report.as_uri()}" width=1200 height=800></iframe>')

    frame = pages.open(host.as_uri()).frame_locator("iframe")

    expect(frame.locator("main" if sandbox else "#static")).to_contain_text("pass rate", ignore_case=True)
    if not sandbox:  # a browser says in its console that it ran nothing
        assert all("sandboxed" in each for each in pages.faults.errors)
        pages.faults.errors.clear()
