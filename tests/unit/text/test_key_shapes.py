"""Text that looks like a key, and text that does not."""

from __future__ import annotations

import json
import string

import pytest

from pytest_osmosis.text.redaction import REPLACEMENT, key_in, may_hold_key, without_keys

ALNUM = (string.ascii_letters + string.digits) * 2
KEYS = [
    "sk-" + ALNUM[40:88],
    "sk-ant-api03-" + ALNUM[30:90] + "_-AA",
    "sk-or-v1-" + "0a" * 32,
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + ALNUM[40:75],
    "ghp_" + ALNUM[30:66],
    "github_pat_" + ALNUM[30:90],
    "glpat-" + ALNUM[50:70],
    "xoxb-123456789012-abcdefABCDEF",
    "hf_" + ALNUM[20:54],
    "gsk_" + ALNUM[20:72],
    "xai-" + ALNUM[20:90],
    "pypi-AgEIcHlwaS5vcmc" + ALNUM[:40],
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
]
TEXTS = [
    "sk-learn and sk-image, a task-oriented risk-free desk-top",
    "scikit-learn-contrib, mask-rcnn-resnet-50-fpn-coco-2017",
    "call_abcDEF0123456789abcdef0123456789, toolu_01A09q90qw90lq917835lq9, chatcmpl-8a7f00e1",
    "hf_hub_download, gsk_, xoxb, AKIA is the beginning of keys of AWS",
    "eyJ is how a JSON Web Token begins; -----BEGIN CERTIFICATE-----",
    "0123456789abcdef" * 8,
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_found_in_any_text(key: str) -> None:
    for text in (key, f'use "{key}", please', f"\n{key}\n", f"KEY={key}"):
        found = key_in({"messages": [{"content": text}]})
        assert found is not None
        assert key.startswith(found[:10])
        assert may_hold_key(json.dumps(text))
        assert without_keys([{text: text}]) == [{text.replace(found, REPLACEMENT): text.replace(found, REPLACEMENT)}]


@pytest.mark.parametrize("value", [*TEXTS, [1, 2.5, True, None, {"a": 0}]])
def test_other_text_and_what_is_no_text_are_left_alone(value: object) -> None:
    assert key_in(value) is None
    assert without_keys(value) == value
    assert not may_hold_key('{"content": "nothing of the kind"}')
