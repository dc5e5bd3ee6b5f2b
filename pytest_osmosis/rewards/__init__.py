"""Reward functions, which score rollouts: eval functions (simple and full mode) and Graders."""
