"""A taskset that runs programs in the runtime of the episode, and whose conversations begin with several messages."""

import sys

import verifiers.v1 as vf
from sums_v1 import SumsHarness

__all__ = ["ProgramsHarness", "ProgramsTaskset"]


class ProgramsHarness(SumsHarness):
    """The same harness, with the last of the messages."""

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        data = data.model_copy(update={"prompt": data.prompt_text.splitlines()[-1]})
        return await super().launch(ctx, trace, runtime, endpoint, secret, mcp_urls, data)


class ProgramsTask(vf.Task[vf.TaskData]):
    @vf.stop
    async def one_turn(self, trace: vf.Trace):
        return trace.num_turns >= 1 and self.data.idx % 2 == 0

    @vf.metric
    async def ran(self, trace, runtime):
        await runtime.write("answer.py", f"print({trace.last_reply!r} * 2)".encode())
        result = await runtime.run([sys.executable, "answer.py"], {})
        return {"length": float(len(result.stdout.strip())), "turns": float(trace.num_turns)}

    @vf.reward(weight=0.1)
    async def doubled(self, trace):
        return trace.metrics["length"]


class ProgramsTaskset(vf.Taskset[ProgramsTask, vf.TasksetConfig]):
    def load(self):
        for n in range(12):
            prompt = [
                {"role": "user", "content": "You will be asked."},
                {"role": "user", "content": f"What is {n} + 1?"},
            ]
            yield ProgramsTask(vf.TaskData(prompt=prompt, name=f"program-{n}"), self.config.task)
