"""The probes: each looks for one kind of bug by calling a reward function, and says what it saw."""
