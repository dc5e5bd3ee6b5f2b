"""Measurements of the speed claims: `python -m benchmarks`, on an otherwise idle machine."""
