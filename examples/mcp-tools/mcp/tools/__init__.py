"""The tools of the shop."""
