"""Adjustments to pytest and to other plugins."""
