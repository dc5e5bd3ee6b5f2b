"""Tests of reward functions."""
