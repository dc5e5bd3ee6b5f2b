"""An environment with a reward function that compares all runs of a row."""

import verifiers as vf
from datasets import Dataset


def longest(completions) -> list[float]:
    sizes = [len(completion[-1].content) for completion in completions]
    return [float(size == max(sizes)) for size in sizes]


def not_shouted(completion) -> float:
    text = completion[-1].content
    if text == "CRASH":
        raise ValueError("too loud")
    return float(text.lower() == text)


def load_environment(short: bool = False):
    def cut(completions) -> list[float]:
        return [0.0]

    rows = Dataset.from_list([{"question": "Say something."}])
    funcs = [longest, not_shouted, *([cut] if short else [])]
    return vf.SingleTurnEnv(eval_dataset=lambda: rows, rubric=vf.Rubric(funcs=funcs))
