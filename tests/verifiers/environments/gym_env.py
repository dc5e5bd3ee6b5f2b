"""Sums of reasoning-gym, in verifiers' own environment for it."""

import verifiers as vf


def load_environment(gym: str = "chain_sum", num_eval_examples: int = 12):
    return vf.ReasoningGymEnv(gym=gym, num_train_examples=3, num_eval_examples=num_eval_examples)
