"""JSON of messages between processes, in which user code may have replaced the encoder and the decoder."""

from __future__ import annotations

import json

import pytest

from pytest_osmosis.text.safe import dumps, loads


def test_user_code_cannot_replace_the_encoder_and_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((json, "dumps"), (json, "loads"), (json.JSONEncoder, "encode"), (json.JSONDecoder, "decode")):
        monkeypatch.setattr(owner, name, lambda *_: None)

    assert loads(dumps({"ev": "start"})) == {"ev": "start"}
