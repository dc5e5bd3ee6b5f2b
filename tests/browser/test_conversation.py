"""A conversation in a report, in a real browser: nothing of it is lost, changed or obeyed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from pytest_osmosis.addons.viewer.report import Kept, ReportedRun, write_report
from pytest_osmosis.addons.viewer.shapes import RunPage
from pytest_osmosis.text.redaction import Redaction
from tests.browser.pages import Pages
from tests.unit.viewer.made_pages import list_of, run_page

RUN = "talks"
N_MESSAGES = 2_000
LONG = "\n".join(f"line {number} of a long text" for number in range(20_000))
TRACEBACK = "".join(f'  File "agent.py", line {line}, in step\n    step()\n' for line in range(60)) + "ValueError: no\n"
UNSEEN = "\x00 bell \x07 back\r turned \u202egnp.exe\u202c unseen\u200b lone \ud800 <img src=x onerror=alert()> 中"
MARKDOWN = """\
# Sum

Keep `def __init__` and __init__ and snake_case_name, but **strong** and *weak*.

| n | square |
|---|---|
| 12 | 144 |

```python
print("<b>&amp;</b>")
```

[safe](https://example.com/a) [unsafe](javascript:alert(1)) <script>window.bad = 1</script>"""


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _message(role: str, content: object, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


QUESTION = _message("user", "What is 37 * 4?")
TOOLS = [
    QUESTION,
    _message(
        "assistant", None, reasoning_content="I shall multiply.",
        tool_calls=[
            _call("call_1", "multiply", '{"a": 37, "b": 12345678901234567890}'),
            _call("call_2", "run", json.dumps({"source": "def f():\n    return 1", "env": {"A": "x" * 99}})),
            _call("call_3", "wait", "{not json"),
        ],
    ),
    _message("tool", "second", tool_call_id="call_2"),
    _message("tool", "first", tool_call_id="call_1"),
    _message("tool", "of nobody", tool_call_id="call_9"),
    _message("user", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]),
    _message("assistant", [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}}]),
    _message("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"text": "a cat"}]}]),
    "not a message at all",
    _message("assistant", None, refusal="I will not."),
    _message("assistant", "So it is 148."),
]  # fmt: skip


def _conversation(messages: Sequence[object], truth: object, score: float, **fields: Any) -> Mapping[str, Any]:
    rollout = {"ev": "rollout", "row": 0, "run": 0, "attempt": 1, "ms": 5.0, "n_prompt": 1, "messages": messages}
    scored = {"ev": "score", "row": 0, "run": 0, "attempt": 1, "ms": 1.0, "scores": {"reward": score}, "errors": {}}
    noted = {"reasons": {"reward": "because of <i>this</i>"}, "metrics": {"reward": {"steps": 3}}}
    return {"rollout": {**rollout, **fields}, "scores": [{**scored, **noted, "output": {}, "ground_truth": truth}]}


CONVERSATIONS: Sequence[Mapping[str, Any]] = [
    _conversation(TOOLS, "148", 0.25),
    _conversation([QUESTION, _message("assistant", UNSEEN)], UNSEEN, 1.0),
    _conversation([QUESTION, _message("assistant", MARKDOWN)], "something else", 0.25, output={"stdout": "printed"}),
    _conversation([QUESTION, _message("assistant", f"{LONG}\nthe last line")], {"at": [1, 2]}, 1.0),
    _conversation([QUESTION, *[_message("assistant", f"message {n}") for n in range(N_MESSAGES)]], None, 1.0),
    {
        "rollout": {
            **_conversation([QUESTION], None, 0.0)["rollout"],
            "boundary": "provider", "error": "401: no key", "details": TRACEBACK, "usage": None,
        },
        "scores": [],
    },
]  # fmt: skip
"""By row."""


def _written(path: Path, kept: Kept) -> Path:
    page: RunPage = run_page(RUN, [1, 0, 1, 0, 0, 2])
    page["head"]["rerun"] = ["pytest 'a.toml::talks[", "]' --osmosis-set=x=1"]
    scored = [each["scores"][0]["scores"]["reward"] if each["scores"] else None for each in CONVERSATIONS]
    page["runs"]["scores"] = {"reward": scored}
    lines = [json.dumps(each).encode() for each in CONVERSATIONS]
    write_report(path, list_of(page), [ReportedRun(page, lines.__getitem__, kept)], {}, {}, Redaction())
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp("report") / "report.html", "all")


def _opened(pages: Pages, report: Path, row: int, query: str = "", **options: Any) -> Page:
    page = pages.open(f"{report.as_uri()}#/run/{RUN}/row{row}-run0{query}", **options)
    expect(page.locator(".messages")).to_be_visible()
    return page


def _shown(part: Locator) -> str:
    return str(part.evaluate("each => each.textContent"))


def test_results_of_tools_stand_below_their_calls_and_nothing_is_dropped(pages: Pages, report: Path) -> None:
    page = _opened(pages, report, 0)
    calls = page.locator(".call")

    assert [_shown(each.locator(".call-name")) for each in calls.all()] == ["multiply", "run", "wait", "look"]
    assert "12345678901234567890" in _shown(calls.nth(0)), "a number is shown as it was sent"
    assert _shown(calls.nth(0).locator(".call-result .text")) == "first"
    assert "def f():\n    return 1" in _shown(calls.nth(1)), "a text with lines is laid out in lines"
    assert _shown(calls.nth(1).locator(".call-result .text")) == "second"
    expect(calls.nth(2)).to_contain_text("{not json")
    expect(calls.nth(2)).to_contain_text("no result with this id follows")
    assert _shown(calls.nth(3).locator(".call-result .text")) == "a cat"

    roles = [_shown(each) for each in page.locator(".message .role").all()]
    assert roles == ["user", "assistant", "tool", "user", "assistant", "not a message", "assistant", "assistant"]
    whole = _shown(page.locator(".messages"))
    texts = (
        "I shall multiply.",
        "of nobody",
        "call_9",
        "image_url",
        "image/png",
        "not a message at all",
        "I will not.",
    )
    assert [text for text in texts if text not in whole] == []
    page.locator(".message").nth(1).get_by_role("button", name="JSON").click()
    assert '"reasoning_content": "I shall multiply."' in _shown(page.locator(".message").nth(1))


def test_markdown_is_laid_out_on_demand_and_is_in_the_address(pages: Pages, report: Path) -> None:
    page = _opened(pages, report, 2)
    answer = page.locator(".message").nth(1)

    assert _shown(answer.locator(".text")) == MARKDOWN
    page.keyboard.press("m")
    expect(answer.locator("strong")).to_have_text("strong")
    assert page.url.endswith("row2-run0?text=markdown")

    for view in (page, _opened(pages, report, 2, "?text=markdown", width=400, theme="dark")):
        answer = view.locator(".message").nth(1)
        assert (
            _shown(answer.locator(".markdown > p").nth(1))
            == "Keep def __init__ and __init__ and snake_case_name, but strong and weak."
        )
        expect(answer.locator("td")).to_have_text(["12", "144"])
        assert _shown(answer.locator(".text.code")) == 'print("<b>&amp;</b>")'
        assert [each.get_attribute("href") for each in answer.locator("a").all()] == ["https://example.com/a"]
        expect(answer).to_contain_text("unsafe (javascript:alert(1))")
        assert view.evaluate("window.bad") is None
        assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_text_is_folded_where_searches_find_it(pages: Pages, report: Path) -> None:
    page = _opened(pages, report, 3)
    answer = page.locator(".message").nth(1)
    folded = answer.locator(".fold-body")

    assert "line 19999 of a long text\nthe last line" in _shown(folded)
    assert folded.get_attribute("hidden") == "until-found"
    folded.evaluate("each => each.dispatchEvent(new Event('beforematch'))")
    expect(answer.get_by_role("button", name="Show less")).to_be_visible()
    assert folded.get_attribute("hidden") is None

    page = _opened(pages, report, 3, "?q=%22the last LINE%22")
    expect(page.locator(".hits")).to_contain_text("1 hit in this conversation")
    expect(page.locator(".message").nth(1).get_by_role("button", name="Show less")).to_be_in_viewport()


def test_an_error_shows_where_it_broke_and_the_end_of_its_traceback(pages: Pages, report: Path) -> None:
    page = _opened(pages, report, 5)
    failure = page.get_by_role("region", name="error")

    expect(failure).to_contain_text("broke at boundary provider")
    expect(failure).to_contain_text("401: no key")
    expect(failure.get_by_text("ValueError: no")).to_be_visible()
    assert TRACEBACK.strip() in _shown(failure.locator(".traceback")).replace("Show 101 lines before", "")
    expect(page.locator(".conversation-head")).to_contain_text("unmeasured")
    expect(page.locator(".scores")).to_contain_text("not scored")


def test_scores_and_the_answer_stand_next_to_what_was_expected_and_all_messages_are_there(
    pages: Pages, report: Path
) -> None:
    page = _opened(pages, report, 0)

    expect(page.locator(".score")).to_contain_text("0.25 < 1")
    expect(page.locator(".score")).to_contain_text("because of <i>this</i>")
    expect(page.locator(".score .metrics")).to_have_text("steps3")
    expect(page.locator(".answer-side").first).to_contain_text("So it is 148.")
    expect(page.locator(".sameness")).to_have_text("⊂ contained in the answer")
    expect(page.locator(".rerun code")).to_have_text("pytest 'a.toml::talks[row0-run0]' --osmosis-set=x=1")
    page.keyboard.press("n")
    expect(page.locator(".conversation-title")).to_have_text("Row 2, run 0")
    expect(page.locator(".sameness")).to_have_text("≠ not the same text")
    expect(page.locator(".records")).to_contain_text("printed")

    long = _opened(pages, report, 4)

    expect(long.locator(".message")).to_have_count(N_MESSAGES + 1)
    assert f"message {N_MESSAGES - 1}" in _shown(long.locator(".message").last)


def test_a_report_without_a_conversation_says_so_and_shows_its_scores(pages: Pages, tmp_path: Path) -> None:
    small = _written(tmp_path / "small.html", "failed")
    page = pages.open(f"{small.as_uri()}#/run/{RUN}/row1-run0?sort=index")

    expect(page.locator(".conversation")).to_contain_text('It was written with html_conversations = "failed".')
    expect(page.locator(".score")).to_contain_text("1 ≥ 1")
    page.keyboard.press("n")
    expect(page.locator(".message")).to_have_count(2)
