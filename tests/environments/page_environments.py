"""The environments that the page of `prime eval` names, as ones that load offline and without verifiers.

Each row asks for a product; the answer of every second row is 42.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = """
import asyncio
import json


class Rubric:
    rolled_out = scoring = 0

    async def score_rollout(self, state):
        Rubric.scoring += 1
        state["scored_at_once"], state["rolled_out"] = Rubric.scoring, Rubric.rolled_out
        await asyncio.sleep(0.001)
        Rubric.scoring -= 1
        said = state["completion"][-1]["content"]
        state["reward"] = float(said == state["answer"])
        state["metrics"] = {"exact": state["reward"], "length": float(len(said))}


class Environment:
    pass_threshold = 0.5

    def __init__(self, name, n_rows, given):
        self.env_id, self.sampling_args, self.rubric = "", {}, Rubric()
        self.name, self.n_rows, self.given = name, n_rows, given
        self.max_turns, self.concurrency = 10, 0

    def set_concurrency(self, concurrency):
        self.concurrency = concurrency

    def get_eval_dataset(self, n=-1, seed=None):
        return [
            {
                "example_id": index,
                "prompt": [{"role": "user", "content": f"{self.name} {json.dumps(self.given)}: 6 * {7 + index % 2}?"}],
                "answer": str(6 * (7 + index % 2)),
                "task": self.name,
            }
            for index in range(self.n_rows)
        ]

    async def rollout(self, input, client, model, sampling_args=None):
        state = dict(input, trajectory=[], trajectory_id=f"t{input['example_id']}")
        state["max_turns"], state["concurrency"] = self.max_turns, self.concurrency
        response = await client.get_response(input["prompt"], model, sampling_args or {}, None, state=state)
        Rubric.rolled_out += 1
        state["completion"] = [{"role": "assistant", "content": response.message.content}]
        state["judge_response"], state["parsed_answer"] = "yes", response.message.content
        state["is_completed"], state["is_truncated"], state["stop_condition"] = True, False, "max_turns_reached"
        return state


def load_environment(rows=ROWS, **given):
    return Environment(NAME, rows, given)
"""


def write(folder: Path, env_id: str, rows: int = 4, pyproject: str = "") -> None:
    """Write an environment of this many rows into `folder`/environments, as `prime env init` does."""
    module = env_id.replace("-", "_")
    home = folder / "environments" / module
    home.mkdir(parents=True)
    text = SOURCE.replace("NAME", repr(env_id)).replace("ROWS", str(rows))
    (home / f"{module}.py").write_text(text, encoding="utf-8")
    project = f'[project]\nname = "{env_id}"\nversion = "0.1.0"\n{pyproject}'
    (home / "pyproject.toml").write_text(project, encoding="utf-8")
