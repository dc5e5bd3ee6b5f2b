"""Checks, which score rollouts without Python: a config names their kinds and parameters."""
