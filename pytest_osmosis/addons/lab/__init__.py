"""Tests of reward functions, without pytest.

`target` finds the reward functions of a module, and `calls` calls one. `contract` and `cases` need only the function.
The probes in `probes/` look for bugs: they call the function in a child process (`child`, `process`) with inputs from
`answers`. All of them report a `LabResult` with `RewardFinding`s (`findings`).
"""
