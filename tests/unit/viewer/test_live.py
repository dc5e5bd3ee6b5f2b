"""An eval run that is read on while it goes on, is killed or ends; the index of its journal; and a search in one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from benchmarks.viewer_runs import RunInProgress, SyntheticRun, write_run
from pytest_osmosis.addons.viewer.open_run import JournalIndex, OpenRun, is_seen
from pytest_osmosis.addons.viewer.run_entry import run_entry
from pytest_osmosis.addons.viewer.run_list import RunList
from pytest_osmosis.addons.viewer.server import Dashboard, NoPageError
from pytest_osmosis.addons.viewer.shapes import encoded
from pytest_osmosis.addons.viewer.stored_results import replayed
from pytest_osmosis.errors import JournalError, ResultsError
from pytest_osmosis.formats import codec
from pytest_osmosis.record.journal import encode, replay
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Event
from pytest_osmosis.results.entry_table import entry_table
from tests.journals import fold
from tests.raised import raised
from tests.unit.made import MANIFEST, A, B, finished, published, results_of
from tests.unit.record.test_lifecycle import HOLD
from tests.unit.record.test_run_record import BEGAN, loads

RUN = SyntheticRun("support-live", rows=4, n=2)


@pytest.fixture
def going_on(tmp_path: Path) -> Iterator[RunInProgress]:
    made = RunInProgress(tmp_path, RUN)
    yield made
    made.journal.close()


@pytest.fixture(autouse=True)
def no_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request reads what is new."""
    monkeypatch.setattr("pytest_osmosis.addons.viewer.open_run.RESTS", 0)


def page_of(live: OpenRun) -> Any:
    return json.loads(live.json())


def counted(page: Any) -> Counter[str]:
    return Counter(page["head"]["outcomes"][each] for each in page["runs"]["outcome"])


def place(page: Any) -> Any:
    """Return what never changes: rows, and which run is where."""
    return page["rows"], [page["runs"][key] for key in ("row", "run", "model")]


def test_a_page_follows_its_eval_run_to_the_end_and_its_runs_keep_their_places(going_on: RunInProgress) -> None:
    live = OpenRun(going_on.directory)
    first = page_of(live)
    assert live.json() is live.json(), "nothing had changed"
    going_on.append(10)  # 8 starts, the first rollout and its first score
    second = page_of(live)
    going_on.append()
    whole_journal = page_of(live)
    going_on.finish()
    last = page_of(live)

    rows = [page["head"]["row"] for page in (first, second, whole_journal, last)]
    assert [row["status"] for row in rows] == ["running"] * 3 + ["finished"]
    assert (counted(first), counted(second)["running"]) == ({"pending": 8}, 8)
    assert (rows[1]["ended"], rows[1]["selected"], rows[2]["pass_rate"]) == (0, 8, None)
    assert rows[3]["passed"] == counted(last)["passed"] > 0
    assert place(first) == place(second) == place(whole_journal) == place(last)
    assert whole_journal["runs"] == last["runs"]
    assert all(first["rows"]["prompt"]), "the dataset has the prompts of rows that nobody asked yet"
    assert last == page_of(OpenRun(going_on.directory))


def test_a_page_that_took_long_stays_for_a_while(going_on: RunInProgress, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_s, clock = count(step=2.0), Mock(return_value=1000.0)
    for name, value in {"RESTS": 4, "monotonic": clock, "thread_time": lambda: next(cpu_s)}.items():
        monkeypatch.setattr(f"pytest_osmosis.addons.viewer.open_run.{name}", value)
    live = OpenRun(going_on.directory)
    first = live.json()
    going_on.append(12)
    clock.return_value = 1007.5
    assert live.json() is first
    clock.return_value = 1008.0
    assert live.json() != first


def test_what_cannot_be_read_is_an_error_until_it_can(going_on: RunInProgress) -> None:
    live, journal = OpenRun(going_on.directory), going_on.directory.journal
    live.json()
    going_on.append(9)
    whole = journal.read_bytes()
    going_on.journal.append(b"{}\n")
    for _ in range(2):
        with pytest.raises(JournalError, match="not a journal line"):
            live.json()
    journal.write_bytes(whole)
    assert counted(page_of(live))["running"]


def test_a_damaged_journal_hides_the_conversations_of_an_eval_run_that_ended_and_not_its_page(tmp_path: Path) -> None:
    directory = write_run(tmp_path, RUN)
    directory.journal.write_bytes(directory.journal.read_bytes().replace(b'"ms":', b'"mS":', 1))
    run = OpenRun(directory)
    assert page_of(run)["head"]["row"]["ended"] == 8
    for ask in (lambda: run.conversation(0), run.compared):
        with pytest.raises(JournalError, match="not a journal line"):
            ask()


def test_another_eval_run_in_the_same_folder_is_asked_for_as_a_whole(tmp_path: Path) -> None:
    directory = write_run(tmp_path, RUN)
    live = OpenRun(directory)
    live.json()
    assert live.conversation(0)
    other = write_run(tmp_path / "other", SyntheticRun(RUN.name, rows=5, n=2, seed=9))
    for path in (directory.results, directory.manifest, directory.journal):
        path.unlink()
        (other.path / path.name).rename(path)
    assert len(page_of(live)["rows"]["index"]) == 5
    fresh = OpenRun(directory)
    fresh.json()
    assert [live.conversation(at) for at in range(10)] == [fresh.conversation(at) for at in range(10)]


def test_a_search_goes_on_where_the_last_request_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_osmosis.addons.viewer.open_run.SEARCH_S", 0.0)
    write_run(tmp_path, RUN)
    dashboard = Dashboard(tmp_path)
    page = json.loads(dashboard.run(RUN.name))
    conversations = [json.loads(dashboard.conversation(RUN.name, at)) for at in range(8)]
    text = conversations[5]["rollout"]["messages"][-1]["content"][:40].upper()
    hits: list[Any] = [{"searched": 0, "is_whole": False, "at": []}]
    while not hits[-1]["is_whole"]:
        hits.append(json.loads(dashboard.search(RUN.name, text, hits[-1]["searched"])))
    assert 5 in [at for each in hits for at in each["at"]]
    assert [each["searched"] for each in hits] == list(range(9))
    assert all(conversations[at]["rollout"]["row"] == page["rows"]["index"][page["runs"]["row"][at]] for at in range(8))


@pytest.mark.parametrize("name", ["..", "../support-live", "", ".", "/etc", "support-liv", "SUPPORT-LIVE"])
def test_only_a_name_in_the_folder_is_an_eval_run(tmp_path: Path, name: str) -> None:
    write_run(tmp_path, RUN)
    with pytest.raises(NoPageError, match="no eval run"):
        Dashboard(tmp_path).run(name)


def opened(directory: RunDirectory) -> OpenRun:
    run = OpenRun(directory)
    run.read()
    return run


def test_a_run_that_its_grader_removed_is_in_no_rate(tmp_path: Path) -> None:
    directory = write_run(tmp_path, RUN)
    events = [dict(event) for event in replay(directory.journal)]
    score = next(event for event in events if event["ev"] == "score" and event["scores"])
    score |= {"removed": True, "name": "rewards:correct", "scores": {}}
    directory.journal.write_bytes(b"".join(map(encode, events)))
    directory.results.unlink()

    run = opened(directory)
    page = run.page()

    assert counted(page)["removed"] == 1
    at = page["runs"]["outcome"].index(page["head"]["outcomes"].index("removed"))
    assert {scores[at] for scores in page["runs"]["scores"].values()} == {None}
    conversation = run.conversation(at)
    assert conversation is not None
    assert any(each.get("removed") for each in json.loads(conversation)["scores"])
    assert page["head"]["row"].counted == 7


def test_facts_of_a_damaged_journal_do_not_fill_the_memory(tmp_path: Path) -> None:
    directory = write_run(tmp_path, RUN, until=14)
    events = [dict(event) for event in replay(directory.journal)]
    events[1]["result_facts"] |= {"selected": [["primary", 0, 0, 10**15]]}
    directory.journal.write_bytes(b"".join(map(encode, events)))

    assert len(opened(directory).runs) == 8


def test_a_command_quotes_the_path_of_a_config_for_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    rerun = opened(write_run(folder, RUN)).page()["head"]["rerun"]

    assert rerun is not None
    assert rerun[0].endswith("it'\"'\"'s here/configs/eval/support.toml::support[")
    assert rerun[1] == "]'"


def test_pages_are_strict_json_without_conversations_and_damaged_results_are_named(tmp_path: Path) -> None:
    directory = write_run(tmp_path, RUN)
    text = encoded(opened(directory).page()).decode()
    assert "You answer questions of customers" not in text, "the system prompt"

    directory.results.write_text(directory.results.read_text()[:500])
    with pytest.raises(ResultsError, match=r"results\.json"):
        opened(directory)


def store(home: Path, name: str, results: Mapping[str, Any]) -> Path:
    folder = home / f"{name}-20261123T000000Z-aaaaaa"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "entry": name}))
    (folder / "journal.jsonl").write_bytes(encode({"ev": "loaded", "scorers": [A], "digests": {A: "0"}}))
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def test_the_table_over_evals_that_ran_together_is_there_once(tmp_path: Path) -> None:
    scores = {"sums,t=0": [1.0, 0.0] * 10, "sums,t=1": [0.0] * 20}
    records = {name: [finished({A: each}, row) for row, each in enumerate(values)] for name, values in scores.items()}
    table = entry_table("configs/eval/sums.toml", {name: results_of(each) for name, each in records.items()})
    folders = [
        store(tmp_path, name, {**published(each), "comparison": codec.encode(table)}) for name, each in records.items()
    ]
    alone = store(tmp_path, "other", published(records["sums,t=0"]))
    page = RunList().page("evals", [*reversed(folders), alone])
    assert [run.name.partition("-")[0] for run in page["runs"]] == ["other", "sums,t=0", "sums,t=1"]
    (rows,) = page["tables"]
    assert [(row["name"], row["pass_rate"]) for row in rows] == [("sums,t=0", 0.5), ("sums,t=1", 0.0)]
    assert rows[0]["finding"] == ""
    assert rows[1]["finding"].startswith("worse: -0.500 over 20 rows")
    assert rows[1]["pass_rate_interval"] is not None


def test_a_damaged_table_or_interval_leaves_the_eval_run_in_the_list(tmp_path: Path) -> None:
    results = published([finished({A: 1.0}, 0)])
    summary = {**results["summary"], "pass_rate_interval": {"low": "x"}}
    folder = store(tmp_path, "x", {**results, "summary": summary, "comparison": {"entry": 1}})
    page = RunList().page("evals", [folder])
    assert page["tables"] == []
    assert page["runs"][0].status == "unreadable"
    assert "summary.pass_rate_interval.low: must be a number, got 'x'" in (page["runs"][0].problem or "")


def test_the_list_follows_an_eval_run(going_on: RunInProgress, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RunList()
    read = Mock(side_effect=run_entry)
    monkeypatch.setattr("pytest_osmosis.addons.viewer.run_list.run_entry", read)
    journal = going_on.directory.journal

    def row() -> tuple[str, int | None, float | None]:
        found = runs.page("evals", [going_on.directory.path])["runs"][0]
        return found.status, found.ended, found.pass_rate

    assert row() == ("running", 0, None)
    going_on.append(9)
    assert row() == ("running", 1, None)
    going_on.append(12)
    ended = journal.read_bytes().count(b'{"ev":"rollout"')
    assert row() == ("running", ended, None)
    again = next(line for line in journal.read_bytes().splitlines(keepends=True) if line.startswith(b'{"ev":"rollout"'))
    going_on.journal.append(again)
    assert row() == ("running", ended, None), "a run counts once, however often it was rolled out"
    n_read = read.call_count
    assert row() == ("running", ended, None)
    assert read.call_count == n_read, "nothing had changed"
    going_on.append()
    going_on.finish()
    pass_rate = json.loads(going_on.directory.results.read_text())["summary"]["pass_rate"]
    assert row() == ("finished", 8, pass_rate)


def test_a_changed_byte_in_the_journal_of_a_run_without_results_makes_it_unreadable(going_on: RunInProgress) -> None:
    going_on.append(9)
    runs = RunList()
    assert runs.row(going_on.directory.path).status == "running"
    n_lines = going_on.directory.journal.read_bytes().count(b"\n")
    going_on.journal.append(encode({"ev": "rollout", "row": 3, "run": 1, "attempt": 1}).replace(b"out", b"oat"))
    row = runs.row(going_on.directory.path)
    assert row.status == "unreadable"
    assert f"journal.jsonl:{n_lines + 1}: not a journal line: its checksum (crc)" in (row.problem or "")


def test_an_eval_run_has_failed_once_its_process_is_killed_which_changes_no_file(going_on: RunInProgress) -> None:
    going_on.journal.close()
    runs = RunList()
    command = [sys.executable, "-c", HOLD, str(going_on.directory.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("taken")
        assert runs.row(going_on.directory.path).status == "pending"
        process.kill()
    assert runs.row(going_on.directory.path).status == "failed"


CALL = {
    "id": "call_0123",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"city": "M\\u00fcnchen", "note": "a\\nb"}'},
}
ROLLOUT = {
    "ev": "rollout",
    "messages": [
        {"role": "system", "content": 'Say "hello" to C:\\temp'},
        {"role": "user", "content": [{"type": "text", "text": "你好, Köln ist GROSS"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,SECRETX"}}]},
        {"role": "assistant", "content": None, "reasoning_content": "first\nsecond", "tool_calls": [CALL]},
    ],
    "finish_reason": "stop",
    "error": "RateLimitError: slow down",
    "output": {"stdout": "printed\n"},
    "fields": {"rollout": {"depth": 12}},
}
SCORE = {"ev": "score", "reasons": {"rewards:exact": "too long"}, "ground_truth": 25186, "errors": {}, "scores": {}}
CONVERSATION = b'{"rollout":%b,"scores":[%b]}' % (encode(ROLLOUT), encode(SCORE))


@pytest.mark.parametrize(
    ("texts", "are_seen"),
    [
        (['say "HELLO"', "c:\\temp", "你好", "köln", "KÖLN IST", "gross", "first\nsecond", "look_up", "münchen"], True),
        (['"city": "münchen"', "a\nb", "ratelimiterror", "PRINTED", "too long", "25186", "12"], True),
        (["role", "assistant", "image_url", "secretx", "call_0123", "u4f60", "ground_truth", "好你"], False),
        (["finish_reason", "message"], False),
    ],
)
def test_a_text_that_a_reader_sees_is_found_and_no_key_is(texts: list[str], are_seen: bool) -> None:
    assert {text: is_seen(text, CONVERSATION) for text in texts} == dict.fromkeys(texts, are_seen)
    assert is_seen("too long", b'{"rollout":{},"scores":[%b]}' % encode(SCORE)), "a run that has only a score"


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "[NaN]"])
def test_arguments_that_no_parser_takes_are_searched_as_they_are(arguments: str) -> None:
    call = {"function": {"arguments": f"needle {arguments}"}}, {"function": {"arguments": arguments}}
    event = encode({"ev": "rollout", "messages": [{"role": "assistant", "tool_calls": call}]})
    assert is_seen("needle", b'{"rollout":%b,"scores":[]}' % event)
    assert not is_seen("a needle", b'{"rollout":%b,"scores":["a needl e"]}' % event)
    assert is_seen(arguments[:50], b'{"rollout":%b,"scores":[]}' % event)


AT = "2026-01-01T00:00:00+00:00"
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "你好,\n6 * 7 \u2028?"},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "content": "42"},
    {"role": "assistant", "content": "42"},
]


def rows(whole: str = "w") -> Event:
    return {"ev": "rows", "rows": {"0": ["p", "w"], "1": ["p", whole]}, "digests": {"0": "d0", "1": "d1"}}


def of_run(kind: str, row: int, attempt: int = 1, **fields: Any) -> Event:
    return {"ev": kind, "row": row, "run": 0, "attempt": attempt, **fields}


start = partial(of_run, "start", at=AT)


def rollout(row: int, attempt: int = 1, messages: Any = MESSAGES, **fields: Any) -> Event:
    return of_run("rollout", row, attempt, ms=1.0, messages=messages, n_prompt=2 if messages else 0, **fields)


def score(row: int, attempt: int = 1, **scores: float) -> Event:
    named = {f"rewards:{name}": value for name, value in scores.items()}
    return of_run("score", row, attempt, ms=1.0, scores=named, errors={}, output={})


STORY: tuple[Event, ...] = (
    BEGAN, loads(), rows(),
    start(0), start(1), rollout(0), score(0, a=1.0), score(0, b=0.25),
    start(1, 2), rollout(1, 2, retries=1), score(1, 2, a=1.0), score(1, a=0.0), rollout(1, 2),
    of_run("score", 1, ms=1.0, scores={}, errors={B: {"message": "no", "details": ""}}, output={}),
    {"ev": "ended", "at": AT, "status": "finished", "reason": None},
    loads("a2"), rows(), score(0, a=0.1),  # a rescoring that did not finish
    loads("a3"), rows(), score(0, a=0.75), score(0, b=0.75), score(1, 2, a=0.5), score(1, 2, b=0.5),
    {"ev": "rescored"},
    BEGAN, loads("a3", "b2"), rows("changed"),
    start(2), score(0, b=0.125), score(1, 2, b=1.0), score(1, 2, a=0.25),
    rollout(2, messages=[], boundary="host", error="gone"), {"ev": "skip", "row": 3, "run": 0, "reason": "no budget"},
    {"ev": "ended", "at": AT, "status": "stopped", "reason": "no budget"},
)  # fmt: skip
"""A crash, a late line, a line that is there twice, two rescorings, and a session that goes on with other code."""


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield the bytes in pieces that end within lines, at their ends, and after several of them."""
    at, size = 0, 1
    while at < len(data):
        yield data[at : at + size]
        at, size = at + size, size * 5 % 977


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def indexed(journal: Path, *events: Event) -> JournalIndex:
    journal.write_bytes(b"".join(map(encode, events)))
    index = JournalIndex(journal)
    index.read()
    return index


def test_an_index_follows_a_journal_that_grows_in_any_pieces(journal: Path) -> None:
    index = JournalIndex(journal)
    index.read()
    for piece in pieces(b"".join(map(encode, STORY))):
        with journal.open("ab") as file:
            file.write(piece)
        index.read()
        assert index.found == replayed(journal), f"after {journal.stat().st_size} bytes"

    whole = JournalIndex(journal)
    whole.read()

    runs = [RunId(row, 0) for row in range(4)]
    assert [index.conversation(run) for run in runs] == [whole.conversation(run) for run in runs]
    assert index.prompts == whole.prompts


def test_a_conversation_has_the_last_rollout_and_the_scores_that_count(journal: Path) -> None:
    index = indexed(journal, *STORY)

    def conversation(row: int) -> Any:
        return json.loads(index.conversation(RunId(row, 0)) or b"null")

    first, second = conversation(0), conversation(1)
    assert first["rollout"] == STORY[5]
    assert [each["scores"] for each in first["scores"]] == [{A: 0.75}, {B: 0.125}]
    assert (second["rollout"]["attempt"], second["rollout"]["retries"]) == (2, 1)
    assert [each["scores"] for each in second["scores"]] == [{B: 1.0}, {A: 0.25}]
    assert conversation(2) == {"rollout": rollout(2, messages=[], boundary="host", error="gone"), "scores": []}
    assert conversation(3) is None


def in_flight(index: JournalIndex) -> list[int]:
    ledger = index.found.ledger
    return sorted(run.row for run, record in ledger.records.items() if ledger.in_flight(record))


def test_a_run_is_in_flight_from_its_start_to_its_last_score_unless_a_killed_session_left_it(journal: Path) -> None:
    index = JournalIndex(journal)
    begun = []
    steps = ((BEGAN, loads(), rows()), (start(0), start(1)), (rollout(1),), (score(1, a=1.0),), (score(1, b=1.0),))
    for events in steps:
        with journal.open("ab") as file:
            file.write(b"".join(map(encode, events)))
        index.read()
        begun.append(in_flight(index))

    assert begun == [[], [0, 1], [0, 1], [0, 1], [0]]
    assert in_flight(indexed(journal, BEGAN, loads(), rows(), start(0), BEGAN, start(1))) == [1]


def test_prompts_are_excerpts_in_one_line_and_turns_are_counted_without_the_prompt(journal: Path) -> None:
    asked = [{"role": "assistant", "content": "an example"}, {"role": "user", "content": [{"text": "word " * 60}]}]
    said = [{"role": "assistant", "content": "1"}, "no message", {"role": "assistant"}]
    events = (BEGAN, loads(), rollout(0), rollout(1, messages=[*asked, *said]), rollout(2, messages=[]))
    index = indexed(journal, *events)

    assert index.prompts[0] == "你好, 6 * 7 ?"
    assert len(index.prompts[1]) == 120
    assert index.prompts[1].endswith("word word…")
    assert 2 not in index.prompts
    turns = {run.row: record.turns for run, record in index.found.ledger.records.items()}
    assert turns == {0: 2, 1: 2, 2: 0}


def test_a_conversation_is_read_of_a_line_that_replaces_a_torn_one(journal: Path) -> None:
    whole = b"".join(map(encode, (BEGAN, loads(), rollout(0))))
    journal.write_bytes(whole + encode(rollout(1))[:99])
    index = JournalIndex(journal)
    index.read()
    journal.write_bytes(whole + encode(rollout(2, text="other")))
    index.read()
    assert json.loads(index.conversation(RunId(2, 0)) or b"")["rollout"] == rollout(2, text="other")


@pytest.mark.parametrize("content", [b"", b"{}\n" * 9, b" " * 10_000, b"\n".join([b"x" * 30] * 99)])
def test_a_journal_that_is_changed_in_place_has_no_conversation(journal: Path, content: bytes) -> None:
    """An editor does that, and so does `cp` of another journal over it."""
    index = indexed(journal, BEGAN, loads(), rollout(0), rollout(1))
    assert index.conversation(RunId(1, 0))
    journal.write_bytes(content)
    with pytest.raises(JournalError, match="the file was changed while it was read"):
        index.conversation(RunId(1, 0))


def test_a_conversation_of_which_a_byte_was_changed_is_not_shown(journal: Path) -> None:
    index = indexed(journal, BEGAN, loads(), rollout(0), score(0, a=1.0, b=1.0))
    lines = journal.read_bytes()
    assert b'"crc"' not in (index.conversation(RunId(0, 0)) or b"")
    for old, new in ((b'"content":"42"', b'"content":"43"'), (b'{"rewards:a":1.0', b'{"rewards:a":0.0')):
        journal.write_bytes(lines.replace(old, new))
        with pytest.raises(JournalError, match="the file was changed while it was read; open the eval run again"):
            index.conversation(RunId(0, 0))


def test_a_damaged_line_that_may_be_deleted_concerns_its_own_run_alone(journal: Path) -> None:
    """Another line decides about the others: without one of them, whole sessions would be passed over."""
    whole = fold(STORY).records
    for number, event in enumerate(STORY):
        lines = list(map(encode, STORY))
        lines[number] = lines[number][:-9] + b"x" + lines[number][-8:]
        journal.write_bytes(b"".join(lines))
        if "delete that line" in str(raised(JournalError, lambda: list(replay(journal)))):
            left = fold([*STORY[:number], *STORY[number + 1 :]]).records
            assert {run for run in whole if left.get(run) != whole[run]} <= {RunId.of(event)}
        else:
            assert "row" not in event


@pytest.mark.parametrize("fields", [{"run": 0}, {"row": 0, "run": {}}, {"row": 0, "run": 0, "attempt": "x", "at": ""}])
def test_an_event_of_an_unknown_kind_is_passed_over(journal: Path, fields: Event) -> None:
    index = indexed(journal, BEGAN, loads(), rollout(0), {"ev": "later", **fields})
    assert index.found == replayed(journal)
    assert len(index.found.session_ms) == 1
