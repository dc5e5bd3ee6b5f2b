"""A taskset of verifiers 0.4 with a harness of its own, which needs no uv: two turns with a model, without a tool."""

import sys

import verifiers.v1 as vf
from pydantic import Field

__all__ = ["SumsHarness", "SumsTaskset"]

PROGRAM = """
import json, sys, urllib.request
url, key, model, turns, prompt = sys.argv[1:]
messages = [{"role": "user", "content": prompt}]
for _ in range(int(turns)):
    body = json.dumps({"model": model, "messages": messages}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", body, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    message = json.load(opener.open(request))["choices"][0]["message"]
    messages += [{"role": "assistant", "content": message["content"]}, {"role": "user", "content": "Are you sure?"}]
print(messages[-2]["content"])
"""


class SumsData(vf.TaskData):
    answer: int
    breaks: str = ""


class OwnConfig(vf.TaskConfig):
    """The config of a task that does not have that of the taskset."""

    factor: float = 0.5


class SumsTask(vf.Task[SumsData]):
    async def setup(self, trace, runtime):
        if self.data.breaks == "setup":
            raise ValueError("no such file")

    @vf.reward(weight=0.75)
    async def exact(self, trace):
        if self.data.breaks == "reward":
            raise ZeroDivisionError("division by zero")
        return float(str(self.data.answer) in trace.last_reply)

    @vf.reward(weight=0.25)
    async def short(self, trace):
        return getattr(self.config, "factor", 1.0) / (1 + len(trace.last_reply))

    @vf.metric
    async def turns(self, trace):
        return float(trace.num_turns)


class SumsConfig(vf.TasksetConfig):
    n: int = 6
    breaks: dict[str, str] = Field(default_factory=dict)


class SumsTaskset(vf.Taskset[SumsTask, SumsConfig]):
    def load(self):
        for n in range(self.config.n):
            data = SumsData(prompt=f"What is {n} + {n * 7}?", answer=n * 8, breaks=self.config.breaks.get(str(n), ""))
            yield SumsTask(data, OwnConfig() if n % 2 else self.config.task)


class SumsHarnessConfig(vf.HarnessConfig):
    turns: int = 2


class SumsHarness(vf.Harness[SumsHarnessConfig]):
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        _, prompt = self.resolve_text_prompt(data)
        program = [sys.executable, "-c", PROGRAM, endpoint, secret, ctx.model, str(self.config.turns), prompt]
        return await runtime.run(program, {})
