"""Generate docs/reference/endpoints.md from the declared keys of the registry of endpoints."""

from __future__ import annotations

from docs.pages import config_keys, markdown
from pytest_osmosis.config.endpoints import DEFAULT_PATH, ENDPOINT

HEAD = f"""\
# Endpoint registry

`{DEFAULT_PATH}` gives models an id, an address and a key. An eval reads it if the file is there, or the one that
`[model] endpoints_path` names: a file, or a folder with an `endpoints.toml`. [Name models in one
place](../how-to/models.md#name-models-in-one-place) shows how to use it.

A mistake in the file ends the session with status 4 before anything is asked, even if the eval names no endpoint. Every
problem is printed with its line.
"""

RULES = """\
## How a model is found

- `[model] endpoint_id`, or a `[experiment] model_path` that equals an id: that endpoint. An unknown `endpoint_id` is an
  error that lists the ids.
- any other `model_path`: as the [providers](providers.md) say; without a provider it is an error that lists the ids.

`[baseline] model_path` and `[judge] model_path` may be ids too. `api_key_env`, `client`, `api_client_type` and
`base_url` of `[model]` count more than the registry's; with `base_url`, only the model, the key and the headers of the
first entry are used.

The model of an environment (`env_id`) that names neither an endpoint nor a server is asked at
`https://api.pinference.ai/api/v1`, with the name as typed, if `PRIME_API_KEY` is set; the header says so. Models of
`demo/` and of servers on this machine, such as `ollama/`, are not, and a name without `/` that resembles an id is an
error. No other server is ever implied.

## APIs

Requests of each `api_client_type`, which `[model]` sets for a server that is not in the registry, go to:

- `openai_chat_completions`: `/chat/completions`
- `openai_responses`: `/responses`; [what it has and lacks](../how-to/models.md#responses-and-chat-completions)
- `openai_completions`: `/completions`, with the texts of the messages as one text, and blank lines between them; tools
  and images cannot be sent
- `openai_chat_completions_token`: `/chat/completions`, which is asked for token ids, then vLLM's
  `/chat/completions/tokens` with those of the turns before. Where it cannot, as after an answer that was cut off, it
  sends the messages
- `anthropic_messages`: `/v1/messages`

## Headers

Each request has the headers of the registry's entry, then those of `[model] headers` on each level: pyproject.toml,
the config, the command line. Of equal names, in any case, the last one counts.

`[model] headers_from_state` names headers whose values are read from a key of the state:

- `row_index`, `run_index`: the indices of the row, and of the run among those of the row
- `example_id`: the row's own `example_id`, or else its index
- `trajectory_id`: a text that no other rollout has

An environment's state has more keys. A header without a value is left out, and what a header cannot hold is written
as in an address (`%C3%BC`). Models of environments and of the registry get `X-Session-ID` with the `example_id`, unless
the config sets it to another key. Recorded answers are found whatever the headers are.

## Replicas

Entries with one `endpoint_id` are replicas of the model: they must have the same `model`, and may differ in all else.

- A request goes to the replica with the fewest requests in flight. `[model] sticky = "row"` or `"run"` keeps the
  requests of a row, or of a run, with one replica while it answers.
- A replica that cannot be reached, or refuses the key, is left out at once; one that answers 5xx, breaks the
  connection or does not answer in time is left out after three failures in a row. After 5 seconds, then 10, up to a
  minute, it gets one request again.
- A request that a replica failed goes to another one at once, under the same limits. Retries of `[model] max_retries`
  begin once no replica is left that could answer, or after a request that was not answered in time. After a 429 a
  replica is spared for as long as it asks.
- The probe asks each replica. One that cannot be reached is left out; a refused key or an unknown address ends the
  session.
- The summary, `results.json` (`replicas`) and `pytest-osmosis show` have the requests to each replica, how many failed,
  and when it was left out, without those of judges and of rollouts that a crash repeated.

Each process of `[execution] hosts` counts what it has in flight, and finds out about replicas for itself. An eval run
goes on though replicas were added, moved or removed.
"""


def page() -> str:
    return markdown.page([HEAD, ["## `[[endpoint]]`", *list(config_keys.section(ENDPOINT))[1:]], RULES])
