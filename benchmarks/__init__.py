"""What the speed claims are measured by: `python -m benchmarks`, on a machine that does nothing else."""
