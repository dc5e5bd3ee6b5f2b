"""The statuses from 400 to 499: whose failure each is, and why.

Only a request that is wrong counts as the model's failure: its conversation may be too long, or malformed. All others
are those of a provider, and say nothing about the model. Sources: RFC 9110, IANA's registry, and the references of
the APIs and gateways that are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Treatment = Literal["denied", "unavailable", "retried", "wrong"]
"""The meaning of a status for the eval: no further request can succeed ("denied"), or none can unless one has succeeded
("unavailable"); the same request may succeed later ("retried"), or never ("wrong")."""

CLIENT_ERRORS: Mapping[int, Treatment] = {
    400: "wrong",  # the request is malformed, or its conversation too long
    401: "denied",  # the key is missing or wrong
    402: "denied",  # no credit is left
    403: "unavailable",  # the key may not use this model, or not from this country
    404: "unavailable",  # there is no such model or address
    405: "wrong",  # the address takes no POST request
    406: "wrong",  # the server has no answer of the type that was asked for
    407: "unavailable",  # a proxy asks for a password
    408: "retried",  # the server waited too long, often for the model (Bedrock, LiteLLM)
    409: "retried",  # the request conflicts with another, which will end
    410: "unavailable",  # the model was withdrawn
    411: "wrong",  # the request does not say how long it is
    412: "unavailable",  # the account is suspended (Fireworks), or its budget is used up (Portkey)
    413: "wrong",  # the request is too large
    414: "wrong",  # the address is too long
    415: "wrong",  # the server does not read requests of this type
    416: "wrong",  # the request asks for a part that does not exist
    417: "wrong",  # the request expects what the server cannot do
    421: "retried",  # this server is not meant to answer; another connection may reach another
    422: "wrong",  # the request is well-formed, but not valid
    423: "retried",  # something that is needed is locked
    424: "retried",  # something behind the server failed (Bedrock, SageMaker, TGI, Groq)
    425: "retried",  # the server wants the request again, later
    426: "wrong",  # the request needs another protocol
    428: "wrong",  # the request lacks a condition
    429: "retried",  # too many requests
    431: "wrong",  # the headers are too large
    446: "wrong",  # a guardrail in front of the model refused the request (Portkey)
    451: "unavailable",  # the law, or a rule of the provider, forbids access from here
    460: "retried",  # a load balancer gave up the connection (AWS)
    498: "retried",  # no capacity is left (Groq)
    499: "retried",  # the request was cancelled behind the server (Gemini, Cohere, nginx)
}


def client_error(status: int) -> Treatment:
    """Return how a status from 400 to 499 is treated.

    No standard has any other than these: a gateway, a load balancer or a firewall answered.
    """
    return CLIENT_ERRORS.get(status, "retried")
