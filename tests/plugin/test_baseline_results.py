"""Baselines: earlier results, or a second model beside the first; the registry of endpoints; and Responses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from aiohttp import web

from tests.plugin.test_several_evals import MAIN
from tests.plugin.workspaces import BROKEN, CONFIG, EXACT, FAIL, PASS, Row, Workspace, junit_cases, read_json
from tests.servers import ChatServer, Exchange, by_api, completion, reply, responses_reply, status

UPDATE = "--osmosis-update-baseline"
FILE = "baselines/x.json"
GATE = {"max_regression": 0.02}


def eval_of(workspace: Workspace, rows: list[Row], **tables: Any) -> None:
    workspace.eval(rows=rows, **{"baseline": {"results": FILE}, "gate": GATE, **tables})


@pytest.mark.journey
def test_a_baseline_is_written_and_a_regression_against_it_fails(workspace: Workspace) -> None:
    eval_of(workspace, [PASS] * 7)
    written = workspace.run(CONFIG, UPDATE, "-rs", exits=0)
    written.assert_outcomes(passed=7, skipped=1)
    written.stdout.fnmatch_lines("""
          baseline: baselines/x.json, which this run will write
        baseline updated: baselines/x.json (pass rate 1.000)
        gate max_regression <= 0.02: not decided (this command writes a new baseline)
    """)
    assert read_json(workspace.root / FILE) == workspace.results()

    eval_of(workspace, [FAIL] * 6 + [PASS])
    result = workspace.run(CONFIG, "--junitxml=junit.xml", exits=1)

    result.assert_outcomes(passed=1, xfailed=6, failed=1)
    finding = "pass rate 0.143, baseline 1.000, same 7 rows; -0.857: a regression (p = 0.031)"
    result.stdout.fnmatch_lines(f"""
          baseline: baselines/x.json (20* UTC, pass rate 1.000, 7 runs)
        against the baseline baselines/x.json (20* UTC): pass rate 0.143, baseline 1.000, same 7 rows
          row0 now: pytest-osmosis show x-* row0-run0
        gate max_regression <= 0.02: FAILS: {finding}
    """)
    case = junit_cases(workspace.root / "junit.xml")["x[gate max_regression <= 0.02]"]
    assert [child.tag for child in case] == ["failure"]
    found = workspace.results()["baseline"]
    assert (found["baseline"], found["rows"], found["worse"], found["regression"]) == (FILE, 7, 6, True)
    assert read_json(workspace.root / FILE) != workspace.results(), "it is never written by itself"


@pytest.mark.slow
def test_a_partial_or_unmeasured_run_does_not_become_the_baseline(workspace: Workspace) -> None:
    for rows, selected, said in (
        ([PASS] * 3, ("-k", "row0-"), "only 1 of 3 runs selected"),
        ([BROKEN] * 3, (), "*"),
        ([*[PASS] * 29, BROKEN], (), "1 of 30 runs was not measured; *"),
    ):
        eval_of(workspace, rows)
        result = workspace.run(CONFIG, UPDATE, *selected)
        assert result.ret in (1, 9)
        result.stdout.fnmatch_lines(["*x?baseline?*", f"the baseline is not updated: {said}"])
        assert not (workspace.root / FILE).exists()


@pytest.mark.slow
@pytest.mark.parametrize("main", [MAIN, MAIN.partition("class Judge")[0]], ids=["graded", "not graded"])
def test_an_eval_with_an_entrypoint_does_not_differ_from_itself(workspace: Workspace, main: str) -> None:
    workspace.write("rollouts/mine/main.py", main)
    eval_of(workspace, [PASS] * 6, experiment={"rollout": "mine", "entrypoint": "main.py"})
    workspace.run(CONFIG, UPDATE)
    assert (workspace.root / FILE).exists()

    result = workspace.run(CONFIG, exits=0)

    result.stdout.fnmatch_lines(["against the baseline baselines/x.json *"])
    result.stdout.no_fnmatch_line("*the baseline differs in *")


# -- a second model alongside: the same prompts, compared row by row; it never fails the session -----------


class Models:
    """A server of the models "new" and "old"; `wrong` holds the rows that each answers wrongly."""

    def __init__(self, new: Collection[int] = (), old: Collection[int] = ()) -> None:
        self.wrong = {"new": new, "old": old}

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        words = exchange.seen.body["messages"][-1]["content"].split()
        row = int(words[2]) if len(words) > 2 else 0  # the probe says less
        right = row not in self.wrong[exchange.seen.body["model"]]
        return web.json_response(completion({"role": "assistant", "content": str(2 * row) if right else "none"}))


@pytest.fixture
def models() -> Models:
    return Models()


@pytest.fixture
def server(models: Models) -> Iterator[ChatServer]:
    with ChatServer(models) as server:
        yield server


def eval_of_model(workspace: Workspace, server: ChatServer, rows: int = 7, **tables: Any) -> None:
    workspace.write("rewards.py", EXACT)
    given: dict[str, Any] = {
        "experiment": {"model_path": "new"},
        "model": {"base_url": server.base_url, "max_retries": 0},
        "baseline": {"model_path": "old", "base_url": server.base_url},
        "evaluation": {"batch_size": 4},
        "sampling": {"seed": 7},
    }
    workspace.eval(rows=rows, **{**given, **tables})


def test_both_models_get_the_same_prompts_and_a_regression_fails(
    workspace: Workspace, models: Models, server: ChatServer
) -> None:
    models.wrong = {"new": range(6), "old": ()}
    eval_of_model(workspace, server, gate=GATE)

    result = workspace.run(CONFIG, "--osmosis-no-probe", "--junitxml=junit.xml", exits=1)

    result.assert_outcomes(passed=8, xfailed=6, failed=1)
    result.stdout.fnmatch_lines(f"""
          7 rows x 1 run x 2 models = 14 rollouts, 4 in flight
          baseline: old at {server.base_url}, on the same rows side by side; its tests never fail
        rewards:score    new *0.143 *
        rewards:score    old *1.000 *
        140 tokens *
        against the baseline old: pass rate 0.143, baseline 1.000, same 7 rows
          row0 now: pytest-osmosis show x-* row0-run0
        baseline old: pass rate 1.000: 7 of 7 runs passed; 70 tokens, cost unknown
        gate max_regression <= 0.02: FAILS: *: a regression (p = 0.031)
    """)
    asked = Counter((body["model"], body["messages"][-1]["content"], body["seed"]) for body in server.bodies)
    assert {**asked} == dict.fromkeys(asked, 1)
    assert {(question, seed) for model, question, seed in asked if model == "new"} == {
        (question, seed) for model, question, seed in asked if model == "old"
    }
    case = junit_cases(workspace.root / "junit.xml")["x[row0-run0-baseline]"]
    assert not list(case.iter("skipped"))
    assert any("tag" in each.attrib["name"] for each in case.iter("property"))
    results = workspace.results()
    assert (results["summary"]["total_runs"], results["summary"]["pass_rate"]) == (14, pytest.approx(1 / 7))
    models_of = [(one["model"], one["model_tag"], one["total_runs"]) for one in results["model_summaries"]]
    assert models_of == [("new", "primary", 7), ("old", "baseline", 7)]
    runs = [(run["model_tag"], run["passed"]) for run in results["rows"][0]["runs"]]
    assert runs == [("primary", False), ("baseline", True)]
    assert results["baseline"]["regression"] is True


@pytest.mark.slow
def test_a_baseline_that_is_not_reached_is_not_measured_and_ends(workspace: Workspace, server: ChatServer) -> None:
    with ChatServer(status(401)) as closed:
        baseline = {"model_path": "old", "base_url": closed.base_url}
        eval_of_model(workspace, server, gate={**GATE, "pass_rate": ">= 0.5"}, baseline=baseline)

        result = workspace.run(CONFIG, exits=9)

        assert len(closed.requests) == 1
    result.assert_outcomes(passed=8, skipped=7, errors=1)
    result.stdout.fnmatch_lines("""
        against the baseline old: not measured: no row was measured on both sides (*401*); *: 7 not measured
        no further request is sent to the baseline's model: the test request failed: *401*
        baseline old: pass rate -: no run was measured
        7 runs of the baseline never ran: the test request failed: *401*
        gate max_regression <= 0.02: NOT MEASURED: no row was measured on both sides (the test request *: *401*)
        gate pass_rate >= 0.5: HOLDS: *
    """)
    pending = workspace.results()["pending"]
    assert {(one["model_tag"], "401" in one["reason"]) for one in pending} == {("baseline", True)}

    n_asked = len(server.requests)
    with ChatServer(status(401)) as closed:
        eval_of_model(workspace, server, model={"base_url": closed.base_url})
        result = workspace.run(CONFIG, exits=9)
    result.stdout.fnmatch_lines(["ERROR configs/eval/x.toml::x?probe?*"])
    assert all(request.body["messages"][-1]["content"] == "hi" for request in server.requests[n_asked:])


@pytest.mark.slow
def test_without_its_gate_a_baseline_that_is_silent_changes_no_exit_status(
    workspace: Workspace, server: ChatServer
) -> None:
    with ChatServer(status(401)) as closed:
        eval_of_model(workspace, server, rows=30, baseline={"model_path": "old", "base_url": closed.base_url})

        result = workspace.run(CONFIG, "--osmosis-no-probe", exits=0)

        assert len(closed.requests) <= 8
    assert workspace.results()["summary"]["finished"] == 30
    assert workspace.results()["status"] == "finished"
    result.stdout.fnmatch_lines(["no further request is sent to the baseline's model: *401*"])


@pytest.mark.slow
def test_each_server_gets_its_own_key_and_no_other(
    workspace: Workspace, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEW_KEY", "the-key-of-the-new-model")
    with ChatServer(Models()) as other:
        baseline = {"model_path": "old", "base_url": other.base_url, "api_key_env": "OLD_KEY"}
        model = {"base_url": server.base_url, "api_key_env": "NEW_KEY", "headers": {"X-Gateway": "of-the-new-model"}}
        eval_of_model(workspace, server, rows=1, model=model, baseline=baseline)

        missing = workspace.run(CONFIG, exits=4)
        missing.stderr.fnmatch_lines(["ERROR: secret OLD_KEY: missing or empty in the environment; *"])

        monkeypatch.setenv("OLD_KEY", "the-key-of-the-old-model")
        assert workspace.run(CONFIG).ret == 0

        assert {seen.headers["authorization"] for seen in server.requests} == {"Bearer the-key-of-the-new-model"}
        assert {seen.headers["authorization"] for seen in other.requests} == {"Bearer the-key-of-the-old-model"}
        assert not any("x-gateway" in seen.headers for seen in other.requests)
    for file in workspace.run_dirs()[-1].iterdir():
        assert not file.is_file() or "the-key-of" not in file.read_text()


@pytest.mark.slow
def test_one_model_alone_is_not_compared(workspace: Workspace, models: Models, server: ChatServer) -> None:
    models.wrong = {"new": range(6), "old": range(3)}
    eval_of_model(workspace, server, gate={**GATE, "pass_rate": ">= 0.1"})

    own = workspace.run(CONFIG, "-k", "not baseline", exits=0)
    own.assert_outcomes(passed=2, xfailed=6, skipped=1, deselected=7)
    own.stdout.fnmatch_lines("""
        gate max_regression <= 0.02: not decided (only 0 of the baseline's 7 runs selected)
        gate pass_rate >= 0.1: HOLDS: *
    """)
    assert {body["model"] for body in server.bodies} == {"new"}
    last_failed = workspace.last_failed()
    assert len(last_failed) == 6
    assert not any("baseline" in nodeid for nodeid in last_failed)

    one = "configs/eval/x.toml::x[row0-run0-baseline]"
    workspace.run(one).assert_outcomes(xfailed=1, skipped=2)

    models.wrong = {"new": range(7), "old": ()}
    eval_of_model(workspace, server, gate=GATE)  # so the selections leave no gate to decide, and single runs do
    own = workspace.run(CONFIG, "-k", "not baseline", exits=1)
    own.assert_outcomes(failed=7, skipped=1, deselected=7)
    without_one = workspace.run(CONFIG, f"--deselect={one}", "--osmosis-no-probe", exits=1)
    without_one.assert_outcomes(failed=7, passed=6, skipped=1, deselected=1)
    workspace.run(CONFIG, "--lf", exits=1).assert_outcomes(failed=7, skipped=1, deselected=7)


@pytest.mark.slow
def test_spending_limits_count_both_models_and_max_errors_one(workspace: Workspace, server: ChatServer) -> None:
    with ChatServer(status(400)) as refusing:
        baseline = {"model_path": "old", "base_url": refusing.base_url}
        eval_of_model(workspace, server, rows=20, baseline=baseline, limits={"max_errors": 0})
        workspace.run(CONFIG, "--osmosis-no-probe", exits=0)

    eval_of_model(workspace, server, rows=20, limits={"max_tokens": 200})
    workspace.run(CONFIG, "--osmosis-no-probe", exits=9)
    assert 200 <= workspace.results()["summary"]["total_tokens"] < 300
    assert [one["total_tokens"] > 0 for one in workspace.results()["model_summaries"]] == [True, True]


@pytest.mark.slow
def test_rescoring_covers_both_models_and_asks_none(workspace: Workspace, models: Models, server: ChatServer) -> None:
    models.wrong = {"new": range(6), "old": ()}
    eval_of_model(workspace, server)
    workspace.run(CONFIG, "--runxfail", exits=1)
    n_asked = len(server.requests)

    result = workspace.run("--osmosis-from=latest", "--osmosis-gate=max_regression = 0.02", exits=1)

    assert len(server.requests) == n_asked
    result.stdout.fnmatch_lines(["gate max_regression <= 0.02: FAILS: *: a regression (p = 0.031)"])
    assert [one["model"] for one in workspace.results()["model_summaries"]] == ["new", "old"]


class Replica:
    """A server that answers so many requests, and then cuts every connection. `answered` counts its answers by row."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.answered: Counter[str] = Counter()

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        prompt = exchange.seen.body["messages"][-1]["content"]
        if self.most is not None and self.answered.total() >= self.most:
            assert exchange.request.transport is not None
            exchange.request.transport.close()
            return web.Response()
        self.answered[prompt] += 1
        return web.json_response(completion({"role": "assistant", "content": prompt}))


def registry(*urls: str, more: str = "") -> str:
    entry = '[[endpoint]]\nendpoint_id = "qwen"\nmodel = "Qwen/Qwen3-8B"\nurl = "{}"\n{}\n'
    return "".join(entry.format(url, more) for url in urls)


def eval_of_id(workspace: Workspace, rows: int, **tables: Any) -> None:
    given: dict[str, Any] = {"experiment": {"model_path": "qwen"}, "model": {"max_retries": 0}}
    workspace.eval(rows=[{"user_prompt": f"row {row}"} for row in range(rows)], **(given | tables))


@pytest.mark.slow
def test_a_replica_that_dies_in_the_middle_loses_nothing_and_repeats_no_answer(workspace: Workspace) -> None:
    dying, alive = Replica(most=9), Replica()
    with ChatServer(dying) as first, ChatServer(alive) as second:
        workspace.write("configs/endpoints.toml", registry(first.base_url, second.base_url))
        eval_of_id(workspace, 40, evaluation={"batch_size": 8})
        result = workspace.run(CONFIG)
        n_requests = {server.base_url: len(server.requests) for server in (first, second)}

    result.assert_outcomes(passed=40)
    answers = dying.answered + alive.answered
    assert {prompt: n for prompt, n in answers.items() if prompt != "hi"} == {f"row {row}": 1 for row in range(40)}
    uses = workspace.results()["summary"]["replicas"]
    assert sum(use["requests"] - use["errors"] for use in uses.values()) == 40
    assert {url: use["requests"] + 1 for url, use in uses.items()} == n_requests, "each got the probe too"
    dead = uses[first.base_url]
    assert dead["left_out"], "each process finds out for itself"
    result.stdout.fnmatch_lines_random(f"""
          model: qwen: Qwen/Qwen3-8B at 2 replicas, {first.base_url}, {second.base_url}; *
        *replica {first.base_url} is left out, and the others get its requests: *
        replica {first.base_url}: {dead["requests"]} requests, {dead["errors"]} failed, left out *
        replica {second.base_url}: {uses[second.base_url]["requests"]} requests
    """)
    shown = workspace.cli("show", "latest")
    assert [line for line in shown.outlines if line.startswith("replica ")] == [
        line for line in result.outlines if line.startswith("replica http") and " requests" in line
    ]


@pytest.mark.slow
def test_a_judge_and_a_baseline_by_id_are_not_asked_again_once_a_replica_is_gone(workspace: Workspace) -> None:
    verdict = json.dumps({"score": 1, "explanation": "good"})
    with ChatServer(reply(verdict)) as server:
        workspace.write("configs/endpoints.toml", registry("http://127.0.0.1:9/v1", server.base_url))
        qwen = {"model_path": "qwen"}
        eval_of_id(workspace, 2, scoring={"rubric": "Is it JSON?", "eval_fns": []}, judge=qwen, baseline=qwen)
        part = (CONFIG, "--osmosis-run=x", "--osmosis-no-probe", "-k", "row0")
        first = workspace.run(*part, "--osmosis-save-results", exits=0)
        (metadata,) = workspace.root.glob("outputs/evals/*/*/metadata.json")
        assert read_json(metadata)["base_url"] == f"http://127.0.0.1:9/v1,{server.base_url}"
        n_asked = len(server.requests)
        workspace.write("configs/endpoints.toml", registry(server.base_url))
        workspace.run(CONFIG, "--osmosis-run=x", "--osmosis-no-probe", exits=0)
        workspace.run("--osmosis-from=x", exits=0)

        assert (n_asked, len(server.requests)) == (4, 8), "two rollouts of each model, and a verdict on each"
    first.stdout.fnmatch_lines(["judge qwen: 2 calls, *"])


def test_headers_of_registry_config_and_state_are_sent_with_each_request(workspace: Workspace) -> None:
    with ChatServer(Replica()) as server:
        more = 'key = "QWEN_KEY"\nheaders = {"X-Team" = "registry", "X-Of" = "registry"}\n'
        workspace.write("endpoints/endpoints.toml", registry(server.base_url, more=more))
        model = {
            "endpoints_path": "endpoints",
            "headers": {"x-team": "config"},
            "headers_from_state": {"X-Row": "row_index", "X-Run": "run_index", "X-Rollout": "trajectory_id"},
        }
        secrets = workspace.write("secrets.env", "QWEN_KEY=sk-registry-7261\n")
        eval_of_id(workspace, 2, experiment={"model_path": "demo/arithmetic"}, model=model, evaluation={"n": 2})
        asks = "--osmosis-set=model.endpoint_id=qwen"
        result = workspace.run(CONFIG, asks, "--osmosis-no-probe", f"--osmosis-secrets-file={secrets}")
        seen = [request.headers for request in server.requests]

    result.assert_outcomes(passed=4)
    assert {(headers["x-team"], headers["x-of"], headers["authorization"]) for headers in seen} == {
        ("config", "registry", "Bearer sk-registry-7261")
    }
    assert sorted((headers["x-row"], headers["x-run"], headers["x-session-id"]) for headers in seen) == [
        ("0", "0", "0"), ("0", "1", "0"), ("1", "0", "1"), ("1", "1", "1"),
    ]  # fmt: skip
    assert len({headers["x-rollout"] for headers in seen}) == 4
    assert workspace.results()["config"]["model"] == "qwen"


CHOSEN = "--osmosis-api-client-type=openai_responses"
SET = "--osmosis-set=sampling"
KEY = "OPENAI_API_KEY"


@pytest.mark.slow
def test_a_cassette_is_replayed_by_its_own_api_alone(workspace: Workspace) -> None:
    workspace.eval(rows=1)
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "0"}]}
    zero = by_api(completion({"role": "assistant", "content": "0"}), None, responses_reply(item))
    with ChatServer(zero) as server:
        at = f"--osmosis-base-url={server.base_url}"
        assert workspace.run(CONFIG, at, CHOSEN, "--osmosis-record").ret == 0
        assert {seen.path for seen in server.requests} == {"/v1/responses"}
        n_asked = len(server.requests)

        replay = workspace.run(CONFIG, at, CHOSEN, "--osmosis-set=model.client=light", "--osmosis-replay")
        other = workspace.run(CONFIG, at, "--osmosis-replay")

        assert (replay.ret, len(server.requests)) == (0, n_asked)
        assert workspace.run(CONFIG, at, "--osmosis-record").ret == 0
        back = workspace.run(CONFIG, at, CHOSEN, "--osmosis-replay")
    for result, difference in ((other, '-*"api": "responses"*'), (back, '+*"api": "responses"*')):
        assert result.ret == 1
        changed = "provider: the cassette has no answer: request 1 of the rollout has changed since it was recorded*"
        result.stdout.fnmatch_lines([changed, difference])


@pytest.mark.parametrize(
    ("words", "api", "sampling"),
    [
        ([], " by the Responses API", "the model's defaults"),
        ([f"{SET}.stop=."], " by chat completions (stop: Responses have none)", "stop ['.']"),
        ([f"{SET}.seed=1", CHOSEN], " by the Responses API", "seed 1 (not sent: the Responses API takes none)"),
    ],
)
def test_the_header_names_the_api(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, words: list[str], api: str, sampling: str
) -> None:
    monkeypatch.setenv(KEY, "sk-a-key-of-some-length")
    workspace.eval(rows=1)
    result = workspace.run(CONFIG, "--osmosis-model=openai/gpt-x", *words, "--osmosis-dry-run", exits=0)
    assert f"  model: openai/gpt-x{api}; sampling: {sampling}" in result.outlines


def test_a_sweep_of_prime_keeps_chat_completions(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk-a-key-of-some-length")
    workspace.eval(rows=1)
    text = (workspace.root / "configs/eval/x.toml").read_text(encoding="utf-8")
    workspace.write("configs/eval/x.toml", f'{text}\n[[eval]]\nname = "one"\nmodel = "openai/gpt-x"\n')
    result = workspace.run(CONFIG, "--osmosis-dry-run", exits=0)
    assert "  model: openai/gpt-x; sampling: the model's defaults" in result.outlines
