"""Tests that users write in Python: of reward functions, and over rollouts.

The `decorator` marks reward functions. `items` are their tests, as pytest collects them; the rest of them does without
pytest. `target` finds the reward functions of a module, and `calls` calls one. `contract` and `cases` need only the
function. The `probes` look for bugs: they call the function in a child process (`child`, `process`), with what a
`probe_context` holds. All of them report a `LabResult` with `RewardFinding`s.

`rollout_tests` makes tests of the marker `osmosis_eval`, and gives each its `rollout`: a reference solution, or that of
a model, which the session's `marked_evals` roll out.
"""
