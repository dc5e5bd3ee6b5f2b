"""Evals under pytest-xdist."""
