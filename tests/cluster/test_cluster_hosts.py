"""The end in pytest's process, with bridges that do what a real one hardly does: die, talk nonsense, say nothing."""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

import pytest

from pytest_osmosis.addons.ray import clusters as bridges
from pytest_osmosis.addons.ray.clusters import ClusterHosts, RemoteConnection
from pytest_osmosis.addons.ray.frames import ClusterFacts
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.engine.host_connection import NO_MESSAGE, Died, Heard, HostEnviron
from pytest_osmosis.errors import ClusterError, HostError
from pytest_osmosis.host.protocol import HostCode, Setup
from tests.cluster.clusters import until

DEADLINE_S = 180.0
FACTS = ClusterFacts("head:6379", "2.60.0", n_nodes=2, n_places=32)
UNUSED = b'{"ev": "unused", "id": 1}\n'

BRIDGE = """
import json, os, signal, sys, time
from pytest_osmosis.addons.ray.frames import Frame, Kind, read_frame

def hear():
    return read_frame(sys.stdin.buffer.read)

def say(kind, number=0, first=b"", second=b""):
    data = memoryview(Frame(kind, number, first, second).encode())
    while data:
        data = data[os.write(1, data):]

def connect():
    assert hear().kind is Kind.CONNECT
    say(Kind.FACTS, 0, {facts!r})

def heard():
    while (frame := hear()) is not None and frame.kind is not Kind.CLOSE:
        yield frame
"""
TELLS = """
say(Kind.SAID, frame.number, b"", f"{frame.kind.name} {frame.first.decode()}\\n".encode())
if frame.kind is Kind.KILL:
    say(Kind.DIED, frame.number, b'{"how": "SIGKILL", "by": "host"}')
"""
"""Code of a bridge whose hosts print what they get."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    until(lambda: not [each for each in threading.enumerate() if each.name.startswith("osmosis")])


@dataclass
class Opened:
    hosts: ClusterHosts
    folder: Path
    posted: queue.SimpleQueue[Heard | Died]

    @property
    def log(self) -> Path:
        return self.folder / "host.log"

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def spawn(self, name: str = "host") -> RemoteConnection:
        setup = Setup(HostCode("roll", str(self.folder), (), {}))
        environ = HostEnviron({"OWN": "1"}, {"GIVEN": "secret"})
        return self.hosts.spawn(name, setup, environ=environ, log=self.log, post=self.posted.put)

    def next(self) -> Heard | Died:
        return self.posted.get(timeout=DEADLINE_S)

    def died(self) -> Died:
        died = self.next()
        assert isinstance(died, Died)
        return died


Make = Callable[[str], Opened]


def hearing(code: str) -> str:
    """The program of a bridge that runs some code for each frame that it hears."""
    return "connect()\nfor frame in heard():\n" + indent(dedent(code), "    ")


@pytest.fixture
def bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return what makes a bridge of its program; it is not open yet."""

    def made(program: str) -> Opened:
        prelude = BRIDGE.format(facts=json.dumps(FACTS._asdict()).encode())
        monkeypatch.setattr(bridges, "BOOT", prelude + dedent(program))
        return Opened(ClusterHosts(RayOptions(), os.environ), tmp_path, queue.SimpleQueue())

    return made


@contextmanager
def opened(made: Opened) -> Iterator[Opened]:
    try:
        assert made.hosts.open() == made.hosts.facts == FACTS
        yield made
    finally:
        made.hosts.close()


def test_a_refusal_is_an_error_with_its_text(bridge: Make) -> None:
    made = bridge("say(Kind.REFUSED, 0, b'no cluster at head:1. Start one.'); hear()")
    with pytest.raises(ClusterError, match=r"^no cluster at head:1\. Start one\.$"):
        made.hosts.open()
    with pytest.raises(HostError, match="no cluster at head:1"):
        made.spawn()


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (r"os.write(2, b'this is odd\n'); os._exit(3)", r"its process ended \(exit status 3\)\nthis is odd$"),
        (r"os.write(1, b'hello, I am Ray!' * 10); time.sleep(1000)", "a message of its process cannot be read"),
        (r"os.write(1, b'\x10' + b'\xff' * 12); time.sleep(1000)", "a message of its process cannot be read"),
        (r"os.write(1, b'\x02' + bytes(12)); time.sleep(1000)", "a message of its process cannot be read"),
    ],
)
def test_a_bridge_that_dies_or_writes_other_things_than_frames_is_an_error(
    bridge: Make, program: str, error: str
) -> None:
    with pytest.raises(ClusterError, match=error):
        bridge(program).hosts.open()


def test_a_bridge_that_says_nothing_is_an_error(bridge: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "CONNECT_S", 0.2)
    monkeypatch.setattr(bridges, "CLOSE_S", 0.2)
    with pytest.raises(ClusterError, match="did not answer within"):
        bridge("time.sleep(1000)").hosts.open()


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os.write(1, Frame(Kind.SAID, 1, b'x' * 99).encode()[:50]); os._exit(1)", "its process ended (exit status 1)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "its process ended (SIGKILL)"),
        ("say(Kind.REFUSED, 0, b'the head is gone'); os._exit(1)", "the head is gone"),
        ("say(Kind.DIED, 1, b'{}'); time.sleep(1000)", "a message of its process cannot be read: KeyError('how')"),
    ],
    ids=["in a frame", "killed", "refused", "nonsense"],
)
def test_a_bridge_that_ends_takes_all_hosts_along(bridge: Make, end: str, how: str) -> None:
    program = hearing(f"""
    if frame.kind is Kind.SEND:
        {end}
    """)
    with opened(bridge(program)) as live:
        hosts = [live.spawn(), live.spawn("scorer")]
        hosts[0].send([{"op": "pause"}])
        text = f"the connection to the Ray cluster ended: {how}"
        died = [live.died(), live.died()]
        assert {id(each.connection) for each in died} == {id(each) for each in hosts}
        assert {(each.how, each.by) for each in died} == {(text, "machine")}
        with pytest.raises(HostError) as error:
            live.spawn()
        assert str(error.value) == text
        assert all(each.join(DEADLINE_S) for each in hosts)
        hosts[0].send([{"op": "pause"}])
        hosts[0].kill()
        assert live.posted.empty()


def test_a_host_is_opened_with_its_setup_and_what_is_given_and_the_number_of_its_eval(bridge: Make) -> None:
    program = hearing('say(Kind.SAID, frame.number, b"", frame.first + frame.second + b"\\n")')
    with opened(bridge(program)) as live:
        live.spawn("scorer")
        for _ in range(2):
            spawn, setup = live.hosts.of_eval(), Setup(HostCode("roll", str(live.folder), (), {}))
            spawn("host", setup, environ=HostEnviron({}), log=live.log, post=live.posted.put)
        until(lambda: len(live.logged()) == 6)
        lines = [json.loads(line) for line in live.logged()]
    assert {line["op"] for line in lines[::2]} == {"setup"}
    assert lines[1] == {"role": "scorer", "environ": {"GIVEN": "secret"}, "eval": 0}
    assert [given["eval"] for given in lines[1::2]] == [0, 1, 2]


def test_names_that_hold_secrets_are_not_in_the_environment_of_the_bridge(bridge: Make) -> None:
    made = bridge(hearing("say(Kind.SAID, 1, b'', json.dumps(dict(os.environ)).encode())"))
    environ = {**os.environ, "MY_KEY": "canary", "SHOWN": "1"}
    made.hosts = ClusterHosts(RayOptions(), environ, hidden={"MY_KEY"})
    with opened(made) as live:
        live.spawn()
        until(live.logged)
        found = json.loads(live.log.read_text())
        assert "MY_KEY" not in found
        assert found["SHOWN"] == "1"


def test_events_arrive_whole_however_their_bytes_do(bridge: Make) -> None:
    program = f"""
    connect()
    hear()
    data = {UNUSED!r} * 3
    for at in range(len(data)):
        say(Kind.SAID, 1, data[at:at + 1])
    say(Kind.SAID, 1, data + data[:5])
    say(Kind.DIED, 1, b'{{"how": "exit status 0", "by": "host"}}')
    say(Kind.SAID, 1, data)
    hear()
    """
    with opened(bridge(program)) as live:
        host = live.spawn()
        heard = [live.next() for _ in range(4)]
        assert all(isinstance(each, Heard) and each.connection is host for each in heard)
        raws = [[raw for _, raw in each.events] for each in heard if isinstance(each, Heard)]
        assert raws == [[UNUSED], [UNUSED], [UNUSED], [UNUSED] * 3]
        assert live.died() == Died(host, "exit status 0", "host")
        assert host.join(DEADLINE_S)
    assert live.posted.empty()


def test_a_host_that_writes_no_events_is_ended(bridge: Make) -> None:
    program = f"""
    connect()
    hear()
    say(Kind.SAID, 1, {UNUSED!r} + b"hello\\n" + {UNUSED!r})
    say(Kind.SAID, 1, {UNUSED!r})
    assert hear().kind is Kind.KILL
    say(Kind.DIED, 1, b'{{"how": "SIGKILL", "by": "host"}}')
    hear()
    """
    with opened(bridge(program)) as live:
        host = live.spawn()
        heard = live.next()
        assert isinstance(heard, Heard)
        assert [raw for _, raw in heard.events] == [UNUSED]
        assert live.died() == Died(host, NO_MESSAGE, "host")


def test_output_that_belongs_to_no_run_is_logged_and_its_end_gives_the_last_words(bridge: Make) -> None:
    program = """
    connect()
    hear()
    for text in ("x" * 500_000, "\\nFatal Python error: Segmentation", " fault\\n", "\\nExtension modules: a"):
        say(Kind.SAID, 1, b"", text.encode())
    say(Kind.DIED, 1, b'{"how": "SIGSEGV", "by": "host"}')
    hear()
    """
    with opened(bridge(program)) as live:
        host = live.spawn()
        assert live.died().how == "SIGSEGV"
        assert host.last_words() == "Fatal Python error: Segmentation fault"
        assert len(live.log.read_text()) > 500_000
        assert live.log.stat().st_mode & 0o777 == 0o600


def test_a_host_that_the_bridge_does_not_end_is_given_up(bridge: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(bridge(hearing("pass"))) as live:
        host = live.spawn()
        host.kill()
        assert not host.join(0.0)
        monkeypatch.setattr(bridges, "ANSWER_S", 0.0)
        host.kill()
        died = live.died()
        assert (died.connection, died.by) == (host, "machine")
        assert host.join(0.0)


def test_hosts_know_their_nodes_once_they_are_placed(bridge: Make) -> None:
    program = hearing("""
    if frame.kind is Kind.OPEN and json.loads(frame.second)["role"] == "host":
        if frame.number != 2:
            say(Kind.PLACED, frame.number, f"n{frame.number % 2}".encode())
    if frame.kind is Kind.KILL:
        say(Kind.DIED, frame.number, b'{"how": "SIGKILL", "by": "host"}')
    """)
    with opened(bridge(program)) as live:
        hosts = [live.spawn() for _ in range(4)]
        live.spawn("scorer")
        until(lambda: hosts[3].placed_at is not None)
        assert [each.node_id for each in hosts] == ["n1", "", "n1", "n0"]
        assert hosts[1].waits_for == "a host needs 1 CPU"
        hosts[1].kill()
        live.died()


def test_threads_send_at_once_and_nothing_is_lost(bridge: Make) -> None:
    with opened(bridge(hearing(TELLS))) as live:

        def work() -> None:
            for host in [live.spawn() for _ in range(10)]:
                for _ in range(20):
                    host.send([{"op": "pause"}])
                host.kill()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(live.died().connection) for _ in range(40)}) == 40
        assert sum(line.startswith("SEND") for line in live.logged()) == 40 * 20


def test_of_what_a_bridge_prints_only_the_end_is_kept(bridge: Make) -> None:
    program = hearing("""
    for _ in range(500):
        os.write(2, b"Ray prints\\n" * 1_000)
    os.write(2, b"its last line\\n")
    say(Kind.SAID, 1, b"", b"printed")
    """)
    with opened(bridge(program)) as live:
        live.spawn()
        until(live.logged)
        assert live.hosts._bridge is not None
        ours = live.hosts._bridge
        until(lambda: ours.last_output().endswith("Ray prints\nits last line"))
        assert len(ours.last_output()) <= bridges.TAIL_BYTES
        assert Path(f"/proc/{ours.pid}/fd/2").stat().st_size < 100_000


def test_closing_ends_a_bridge_that_does_not_end(bridge: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "CLOSE_S", 0.2)
    with opened(bridge("connect()\nwhile True: hear(); time.sleep(0.1)")) as live:
        host = live.spawn()
        live.hosts.close()
        live.hosts.close()
        assert live.died() == Died(host, "the connection to the Ray cluster was closed", "machine")
        with pytest.raises(HostError, match="was closed"):
            live.spawn()


def test_a_connection_that_is_not_open_starts_no_host(tmp_path: Path) -> None:
    made = Opened(ClusterHosts(RayOptions(), {}), tmp_path, queue.SimpleQueue())
    with pytest.raises(HostError, match="is not open"):
        made.spawn()
    with pytest.raises(ClusterError, match="is not open"):
        made.hosts.facts  # noqa: B018 (it raises)
    made.hosts.close()
