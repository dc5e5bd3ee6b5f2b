"""Frameworks that read the environment send nothing to anybody but the endpoint."""

from __future__ import annotations

from pytest_osmosis.endpoint.rollouts import Address, variables


def test_the_agents_sdk_of_openai_sends_no_traces_with_the_endpoints_key() -> None:
    changes = variables(Address("http://127.0.0.1:1/v1", "key"))
    assert changes["OPENAI_AGENTS_DISABLE_TRACING"] == "1"
