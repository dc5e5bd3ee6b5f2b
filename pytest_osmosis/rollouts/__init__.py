"""Agents, which produce rollouts."""
