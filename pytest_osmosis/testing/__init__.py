"""Ordinary tests over rollouts, without pytest: what a test asks for, and what it gets."""
