"""The words of hosts that wait in a relay: what a reply holds, and in which order."""

from __future__ import annotations

import json
import threading

import pytest

from pytest_osmosis.cluster.backlog import LOG_BYTES, MOST_BYTES, REPLY_BYTES, Backlog, Said
from pytest_osmosis.cluster.frames import Kind

DEADLINE_S = 180.0
FOR_EVER_S = 1000.0


def backlog_of(*numbers: int) -> Backlog:
    """A backlog of hosts whose start was told."""
    backlog = Backlog()
    for number in numbers:
        backlog.placed(number, b"{}")
    backlog.take(0.0)
    return backlog


def size(reply: list[Said]) -> int:
    return sum(len(first) + len(second) for _, _, first, second in reply)


def said(reply: list[Said]) -> dict[int, bytes]:
    return {number: first for kind, number, first, _ in reply if kind == Kind.SAID}


def test_a_start_comes_first_and_a_death_last() -> None:
    backlog = Backlog()
    backlog.placed(1, b"place")
    backlog.said(1, b"word")
    backlog.logged(1, b"log")
    backlog.died(1, b"death")
    assert backlog.take(FOR_EVER_S) == [
        (Kind.PLACED, 1, b"place", b""),
        (Kind.SAID, 1, b"word", b"log"),
        (Kind.DIED, 1, b"death", b""),
    ]


def test_a_death_waits_until_everything_fits_and_is_the_end_of_a_host() -> None:
    backlog = backlog_of(1)
    text = b"x" * (2 * REPLY_BYTES)
    backlog.said(1, text)
    backlog.died(1, b"death")
    replies = [backlog.take(FOR_EVER_S) for _ in range(3)]
    assert b"".join(said(reply).get(1, b"") for reply in replies) == text
    assert [kind for reply in replies for kind, *_ in reply] == [Kind.SAID, Kind.SAID, Kind.SAID, Kind.DIED]
    backlog.placed(2, b"")
    assert [frame[1] for frame in backlog.take(0.0)] == [2]


def test_a_quiet_host_is_heard_in_the_next_reply_whatever_another_says() -> None:
    backlog = backlog_of(1, 2, 3)
    backlog.said(1, b"a" * MOST_BYTES)
    backlog.said(2, b"b" * 100)
    backlog.said(3, b"c" * MOST_BYTES)
    reply = backlog.take(0.0)
    words = said(reply)
    assert words[2] == b"b" * 100
    assert abs(len(words[1]) - len(words[3])) <= 1
    assert REPLY_BYTES - 1000 < size(reply) <= REPLY_BYTES


def test_replies_stay_small_when_many_hosts_are_placed_at_once() -> None:
    numbers = range(20)
    backlog = Backlog()
    for number in numbers:
        backlog.placed(number, bytes(20_000))
        backlog.said(number, b"word")
    heard: list[Said] = []
    while len([1 for kind, *_ in heard if kind == Kind.PLACED]) < len(numbers):
        reply = backlog.take(FOR_EVER_S)
        assert size(reply) <= REPLY_BYTES
        heard += reply
    assert {number for kind, number, *_ in heard if kind == Kind.SAID} == set(numbers)


def test_words_are_gathered_but_starts_are_not_delayed() -> None:
    backlog = backlog_of(1, 2)
    replies: list[list[Said]] = []
    listener = threading.Thread(target=lambda: replies.append(backlog.take(FOR_EVER_S)))
    backlog.said(1, b"one")
    listener.start()
    backlog.said(2, b"two")
    backlog.said(1, b" more")
    assert not replies
    backlog.placed(3, b"place")
    listener.join(DEADLINE_S)
    assert replies == [[(Kind.SAID, 1, b"one more", b""), (Kind.SAID, 2, b"two", b""), (Kind.PLACED, 3, b"place", b"")]]


def test_a_reply_that_is_full_is_not_delayed() -> None:
    backlog = backlog_of(1)
    backlog.said(1, b"x" * REPLY_BYTES)
    assert said(backlog.take(FOR_EVER_S))[1].startswith(b"xxx")
    rest = backlog.take(0.0)
    assert len(said(rest)[1]) < 1000


def test_nothing_is_an_empty_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_osmosis.cluster.backlog.WAIT_S", 0.01)
    assert backlog_of(1).take(FOR_EVER_S) == []


def test_a_log_waits_for_its_release_and_keeps_its_end() -> None:
    backlog = backlog_of(1)
    backlog.logged(1, b"first")
    backlog.said(1, b"word")
    assert backlog.take(0.0) == [(Kind.SAID, 1, b"word", b"")]
    backlog.release_logs()
    assert backlog.take(0.0) == [(Kind.SAID, 1, b"", b"first")]
    for _ in range(100):
        backlog.logged(1, b"x" * LOG_BYTES)
    backlog.logged(1, b"last")
    backlog.died(1, b"death")
    log = b""
    while (reply := backlog.take(0.0))[-1][0] != Kind.DIED:
        log += b"".join(second for *_, second in reply)
    log += b"".join(second for *_, second in reply)
    note = f"\n[... {99 * LOG_BYTES + 4:,} bytes left out ...]\n".encode()
    assert log == note + b"x" * (LOG_BYTES - 4) + b"last"


def test_a_closed_backlog_takes_no_words_but_deaths() -> None:
    backlog = backlog_of(1)
    backlog.said(1, b"x" * MOST_BYTES)
    assert backlog.is_full(1)
    backlog.close()
    assert not backlog.is_full(1)
    backlog.said(1, b"y")
    backlog.died(1, json.dumps({"how": "closed"}).encode())
    text = b""
    while (reply := backlog.take(0.0))[-1][0] != Kind.DIED:
        text += said(reply)[1]
    assert text + said(reply).get(1, b"") == b"x" * MOST_BYTES
