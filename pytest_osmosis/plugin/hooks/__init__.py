"""Hooks that a conftest.py or another plugin may implement."""
