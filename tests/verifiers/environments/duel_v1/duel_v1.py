"""A taskset with an environment of its own: two agents in each episode, whose rewards depend on each other."""

from itertools import count

import verifiers.v1 as vf
from sums_v1 import SumsHarness

__all__ = ["DuelEnv", "DuelHarness", "DuelTaskset"]


class DuelHarness(SumsHarness):
    """The harness of both agents."""


class DuelTask(vf.Task[vf.TaskData]):
    @property
    def key(self):
        return f"duel:{self.data.idx}"

    @vf.metric
    async def length(self, trace):
        return float(len(trace.last_reply))


class DuelConfig(vf.EnvConfig):
    first: vf.AgentConfig = vf.AgentConfig()
    second: vf.AgentConfig = vf.AgentConfig()


class DuelEnv(vf.Env[DuelConfig]):
    async def run(self, task, agents):
        await agents.first.run(task)
        await agents.second.run(task.with_data(prompt=f"Against it: {task.data.prompt}"))

    async def finalize(self, task, episode):
        replies = {trace.agent.name: trace.last_reply for trace in episode.traces}
        for trace in episode.traces:
            trace.record_reward("wins", float(replies[trace.agent.name] == min(replies.values())), 0.5)
            trace.record_reward("polite", 0.25)


class DuelTaskset(vf.Taskset[DuelTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        for n in count():
            yield DuelTask(vf.TaskData(prompt=f"What is {n} + {n * 3}?"), self.config.task)
