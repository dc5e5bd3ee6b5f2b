"""An environment with one turn: sums, of which the model solves those that it says right."""

import verifiers as vf
from datasets import Dataset


def exact(completion, answer, **kwargs):
    return float(completion[-1]["content"].endswith(answer))


def length(completion, **kwargs):
    return len(completion[-1]["content"])


def load_environment(n_rows=4):
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1), "info": {"n": n}} for n in range(n_rows)]
    rubric = vf.Rubric(funcs=[exact])
    rubric.add_metric(length)
    return vf.SingleTurnEnv(eval_dataset=Dataset.from_list(rows), rubric=rubric)
