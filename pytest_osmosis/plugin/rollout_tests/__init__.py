"""Tests over rollouts: ordinary tests marked `osmosis_eval`, one for each row and run, that get a `rollout`."""
