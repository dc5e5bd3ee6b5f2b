"""Verdicts on records: whether a run passed, whether a gate holds, and the meaning of a comparison."""
