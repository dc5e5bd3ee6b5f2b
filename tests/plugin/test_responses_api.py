"""OpenAI's Responses in a whole session: the header, cassettes, and what contradicts the choice of that API."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace
from tests.servers import ChatServer, by_api, completion, responses_reply

CHOSEN = "--osmosis-api-client-type=openai_responses"
OPENAI = "--osmosis-model=openai/gpt-x"
SET = "--osmosis-set=sampling"
KEY = "OPENAI_API_KEY"
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "0"}]}


def answers() -> ChatServer:
    return ChatServer(by_api(completion({"role": "assistant", "content": "0"}), None, responses_reply(ANSWER)))


@pytest.mark.slow
def test_a_cassette_is_replayed_by_its_own_api_alone(workspace: Workspace) -> None:
    workspace.eval(rows=1)
    with answers() as server:
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
        ([f"{SET}.seed=1"], " by chat completions (seed: Responses have none)", "seed 1"),
        ([f"{SET}.seed=1", CHOSEN], " by the Responses API", "seed 1 (not sent: the Responses API takes none)"),
        (["--osmosis-api-client-type=openai_chat_completions"], "", "the model's defaults"),
    ],
)
def test_the_header_names_the_api(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, words: list[str], api: str, sampling: str
) -> None:
    monkeypatch.setenv(KEY, "sk-a-key-of-some-length")
    workspace.eval(rows=1)
    result = workspace.run(CONFIG, OPENAI, *words, "--osmosis-dry-run", exits=0)
    assert f"  model: openai/gpt-x{api}; sampling: {sampling}" in result.outlines


def test_a_sweep_of_prime_keeps_chat_completions(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk-a-key-of-some-length")
    workspace.eval(rows=1)
    text = (workspace.root / "configs/eval/x.toml").read_text(encoding="utf-8")
    workspace.write("configs/eval/x.toml", f'{text}\n[[eval]]\nname = "one"\nmodel = "openai/gpt-x"\n')
    result = workspace.run(CONFIG, "--osmosis-dry-run", exits=0)
    assert "  model: openai/gpt-x; sampling: the model's defaults" in result.outlines
