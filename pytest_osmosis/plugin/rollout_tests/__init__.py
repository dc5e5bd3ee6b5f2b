"""Tests marked `osmosis_eval`: ordinary tests, one for each row and run, that get a `rollout`."""
