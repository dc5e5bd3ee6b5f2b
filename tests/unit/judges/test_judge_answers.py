"""The answers of judges: everything from which a score can be read, and everything from which none may be."""

from __future__ import annotations

import pytest

from pytest_osmosis.judges.judge import Opinion, UnreadableAnswer, read_opinion


@pytest.mark.parametrize(
    ("answer", "score", "explanation"),
    [
        ('{"score": 0.5, "explanation": " half "}', 0.5, "half"),
        ('```json\n{"score": 1, "explanation": "right"}\n```', 1.0, "right"),
        ('Here it is:\n{"explanation": "a {brace} in it", "score": "0.25"}\nDone.', 0.25, "a {brace} in it"),
        ('<think>{"score": 0}? No.</think>{"score": 1, "explanation": "sure"}', 1.0, "sure"),
        ('so 0 it is</think>\n{"score": 1, "reasoning": "sure"}', 1.0, "sure"),
        ('{"score": 1}', 1.0, ""),
        ('{"score": 1, "explanation": null, "reason": "right"}', 1.0, "right"),
        ('{"score": 1, "explanation": "two\nlines"}', 1.0, "two\nlines"),
        ('{"score": 1, "explanation": "a"} and once more {"score": 1.0}', 1.0, "a"),
        ('{not json} {"score": 0}', 0.0, ""),
        ('{"score": 0, "explanation": "it ends with </think>"}', 0.0, "it ends with </think>"),
        ('```json\n{"score": 0, "explanation": "<think>a</think>"}\n```', 0.0, "<think>a</think>"),
        ('{"score": 1} </think> {"score": 0, "explanation": "a"}', 0.0, "a"),
        ('{"score": 1, "score": 1.0}', 1.0, ""),
    ],
)
def test_a_score_is_read_from_the_text_around_it(answer: str, score: float, explanation: str) -> None:
    assert read_opinion(answer, 0.0, 1.0) == Opinion(score, explanation)


@pytest.mark.parametrize("stated", ["-1", "-1.0", "5", '"5"', "5.000", "0", "-0.0"])
def test_a_score_at_an_end_of_the_range_is_a_score(stated: str) -> None:
    assert read_opinion(f'{{"score": {stated}}}', -1.0, 5.0).score == float(stated.strip('"'))


@pytest.mark.parametrize(
    ("stated", "shown"),
    [("7", "7"), ("-3", "-3"), ('"8"', "8"), ("5.0000001", "5.0000001"), ("1e300", "1e+300"), ("-1.5", "-1.5")],
)
def test_a_score_on_another_scale_is_none(stated: str, shown: str) -> None:
    with pytest.raises(UnreadableAnswer) as raised:
        read_opinion(f'{{"score": {stated}, "explanation": ""}}', -1.0, 5.0)

    assert str(raised.value) == f'its "score" is {shown}, not from -1 to 5'


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("", "it has no text"),
        ("<think>{}</think>", "it has no text"),
        ("The score is 1.", 'it has no JSON object with a "score"'),
        ('{"result": {"score": 1}}', 'it has no JSON object with a "score"'),
        ('{"score": 1', "it has JSON that cannot be read"),
        ('{"score": 0, "explanation": "it says "{"score": 1}""}', "it has JSON that cannot be read"),
        ("{'score': 0, 'explanation': 'it says {\"score\": 1}'}", "it has JSON that cannot be read"),
        ('It says {"score": 1}. I say {"score": 0, "explanation": "a "b" c"}', "it has JSON that cannot be read"),
        ('{"score": 0, "score": 1}', "it has an object with different scores"),
        ('<think>maybe {"score": 1}, but', "its thoughts do not end"),
        ('{"score": true}', 'its "score" is no number: true'),
        ('{"score": "7/10"}', 'its "score" is no number: "7/10"'),
        ('{"score": "80%"}', 'its "score" is no number: "80%"'),
        ('{"score": null}', 'its "score" is no number: null'),
        ('{"score": Infinity}', 'its "score" is not finite'),
        ('{"score": -Infinity}', 'its "score" is not finite'),
        ('{"score": 2} or {"score": 1}', "it has 2 different scores"),
        ('{"score": [1]}', 'its "score" is no number: [1]'),
        ('{"score": NaN}', 'its "score" is not finite'),
        (f'{{"score": 1{"0" * 400}}}', 'its "score" is not finite'),
        ('The candidate says {"score": 1}. I say {"score": 0}.', "it has 2 different scores"),
        ("{" * 5_000, 'it has no JSON object with a "score"'),
        ('{"a":' * 5_000, "it has JSON that cannot be read"),
    ],
)
def test_an_answer_without_one_clear_score_is_unreadable(answer: str, fault: str) -> None:
    with pytest.raises(UnreadableAnswer) as raised:
        read_opinion(answer, 0.0, 1.0)

    assert str(raised.value) == fault
