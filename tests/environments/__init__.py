"""Tests of evals of environments, which these tests write by duck type: verifiers is not installed here."""
