"""The hooks that a conftest.py or another plugin may implement."""
