"""A group of two environments, which score with functions of their own."""

import verifiers as vf
from datasets import Dataset


def short(completion) -> float:
    return float(len(completion[-1].content) < 10)


async def digits(completion, info, answer) -> float:
    return sum(each.isdigit() for each in completion[-1].content) + float(answer) + len(info or {})


def single(question: str, rubric: vf.Rubric) -> vf.SingleTurnEnv:
    rows = [{"question": f"{question} {n}", "answer": str(n)} for n in range(3)]
    return vf.SingleTurnEnv(eval_dataset=Dataset.from_list(rows), rubric=rubric)


def load_environment():
    members = [single("Be short", vf.Rubric(funcs=[short])), single("Use digits", vf.Rubric(funcs=[digits]))]
    return vf.EnvGroup(envs=members, env_names=["short", "digits"])
