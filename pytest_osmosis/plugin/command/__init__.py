"""The command line: its options, the evals that it names, and their checks before anything runs."""
