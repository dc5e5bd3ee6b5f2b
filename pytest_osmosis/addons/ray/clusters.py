"""The Ray clusters of a session, on which hosts of its evals run."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pytest_osmosis.addons.ray.frames import ClusterFacts
from pytest_osmosis.addons.ray.hosts import ClusterHosts
from pytest_osmosis.addons.ray.needs import HostNeeds
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.errors import ClusterError, ConfigError, Problem
from pytest_osmosis.evals import Prepared, SelectedRuns, Spawn, Worktrees, n_hosts, worktree_of
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import count, plural

if TYPE_CHECKING:
    from pytest_osmosis.engine.engine import Engine


class ClusterKey(NamedTuple):
    """The part of a config that is the same for evals whose hosts are started over one connection."""

    options: str
    upload: str


OnCluster = tuple[Prepared, SelectedRuns]
"""An eval whose hosts run on a cluster, and its selected runs."""


class RayClusters:
    """The connections of a session to clusters: one for each distinct pair of `[execution.ray]` and uploaded folder of
    code. `environ` is that of bridges, and `worktrees` have the code of commits."""

    def __init__(self, environ: Mapping[str, str], worktrees: Worktrees) -> None:
        self._environ = environ
        self._worktrees = worktrees
        self._opened: dict[ClusterKey, ClusterHosts] = {}
        self._engines: dict[ClusterKey, list[Engine]] = {}
        self._growing: list[Engine] = []
        self._told_elsewhere: dict[ClusterKey, int] = {}

    def open(self, evals: Sequence[OnCluster]) -> list[str]:
        """Connect to the clusters of evals, and return a note on each.

        Raises `ClusterError` if that fails or no node can run a host, `ConfigError` if nodes cannot reach a model, or
        `CodeError` if there is no code to upload.
        """
        each_prepared = [prepared for prepared, _ in evals]
        hidden = {name for prepared in each_prepared for name in prepared.models.secrets}
        tied = {self._key(prepared) for prepared in each_prepared if any(_loopback_problems(prepared))}
        for prepared in each_prepared:
            options, key = prepared.config.execution.ray, self._key(prepared)
            if key not in self._opened:
                self._opened[key] = hosts = ClusterHosts(
                    options,
                    self._environ,
                    hidden,
                    upload=key.upload,
                    changed=partial(self._take_facts, key),
                    only_here=key in tied,
                )
                _check_room(hosts.open(), options)
        problems = [
            problem
            for prepared in each_prepared
            if not self.of(prepared).facts.is_local
            for problem in _loopback_problems(prepared)
        ]
        problems += [problem for prepared in each_prepared for problem in _answers_that_do_not_travel(prepared)]
        if problems:
            raise ConfigError(dict.fromkeys(problems))
        return list(dict.fromkeys(self._notes(evals)))

    def of(self, prepared: Prepared) -> ClusterHosts:
        """Return the cluster of an eval, which is open."""
        return self._opened[self._key(prepared)]

    def spawn(self, prepared: Prepared) -> Spawn:
        """Return what starts the hosts of an eval. It is asked for once by each."""
        return self.of(prepared).of_eval()

    def n_places(self, prepared: Prepared) -> int:
        """Return the number of hosts of an eval that sets none: as many as its cluster has room for."""
        return max(1, self.of(prepared).facts.n_places)

    def join(self, prepared: Prepared, engine: Engine) -> None:
        """Let an eval hear of nodes that join. If it sets no number of hosts, it gets further ones there."""
        execution = prepared.config.execution
        self._engines.setdefault(self._key(prepared), []).append(engine)
        if execution.hosts is None:
            self._growing.append(engine)
            engine.grow(self.n_places(prepared))  # nodes may have joined since it got its number of hosts

    def _take_facts(self, key: ClusterKey, facts: ClusterFacts) -> None:
        told = self._told_elsewhere.get(key, 0)
        self._told_elsewhere[key] = max(facts.n_elsewhere, told)
        for engine in [*self._engines.get(key, ())]:
            if engine in self._growing:
                engine.grow(facts.n_places)
            if facts.n_elsewhere > told:
                engine.notices.alert(_elsewhere_text(facts.n_elsewhere))

    def close(self) -> None:
        """End all hosts and leave the clusters. Idempotent."""
        while self._opened:
            _, hosts = self._opened.popitem()
            hosts.close()

    def _notes(self, evals: Iterable[OnCluster]) -> Iterator[str]:
        """Yield how many hosts each cluster has. Evals of a session may have them one after the other."""
        of_cluster: dict[ClusterKey, list[OnCluster]] = {}
        for each in evals:
            of_cluster.setdefault(self._key(each[0]), []).append(each)
        for together in of_cluster.values():
            first, _ = together[0]
            numbers = {n_hosts(prepared.config, selected, self.n_places(first)) for prepared, selected in together}
            facts = self.of(first).facts
            text = hosts_text(max(numbers), facts, first.config.execution.ray)
            text += unused_text(together, max(numbers), facts)
            yield text if len(numbers) == 1 else f"up to {text}"

    def _key(self, prepared: Prepared) -> ClusterKey:
        options, upload = prepared.config.execution.ray, ""
        if options.workspace == "upload":
            worktree = worktree_of(prepared, self._worktrees)
            upload = str(prepared.config.workspace if worktree is None else worktree.workspace)
        return ClusterKey(json.dumps(options.to_json(), sort_keys=True), upload)


def _check_room(facts: ClusterFacts, options: RayOptions) -> None:
    """Raise `ClusterError` if no node can run a host, even one that nothing else uses."""
    if facts.n_nodes:
        return
    needs = HostNeeds(options.resources)
    kinds = [f"{name} {value}" for name, value in needs.selector.items()]
    kinds += [str(options.resources["accelerator_type"])] if "accelerator_type" in options.resources else []
    of_kind = f" on a node with {', '.join(kinds)}" if kinds else ""
    needed = f"which needs {needs.amounts_text(1)}{f': {facts.unmet}' if facts.unmet else of_kind}"
    fix = "change [execution.ray] resources, or add a node that has them"
    raise ClusterError(f"no node of the Ray cluster at {facts.address} can run a host, {needed}; {fix}")


def _elsewhere_text(n_nodes: int) -> str:
    one, many = (
        "1 node of the cluster is on another machine and gets",
        "nodes of the cluster are on other machines and get",
    )
    return (
        f"{one if n_nodes == 1 else f'{n_nodes} {many}'} no hosts, because a model's base_url is an address of this "
        "machine; use an address that all nodes can reach"
    )


def hosts_text(n: int, facts: ClusterFacts, options: RayOptions) -> str:
    """Return on how many nodes of a cluster `n` hosts run, and how many of them have no place yet."""
    few = "a cluster of " if n < facts.n_nodes else ""
    cluster = f"{few}{plural(facts.n_nodes, 'node')} (Ray {facts.ray} at {facts.address})"
    if facts.n_places >= n:
        return f"{plural(n, 'host')} on {cluster}"
    waiting = n - facts.n_places
    verbs = ("has", "waits") if facts.n_places == 1 else ("have", "waits") if waiting == 1 else ("have", "wait")
    placed = f"{count(facts.n_places)} of {plural(n, 'host')} {verbs[0]} a place on {cluster}"
    return f"{placed}; {count(waiting)} {verbs[1]} for {HostNeeds(options.resources).amounts_text(waiting)}"


def unused_text(evals: Iterable[OnCluster], n: int, facts: ClusterFacts) -> str:
    """Return that `batch_size` keeps evals at `n` hosts, of which the cluster has room for more; "" if it does not."""
    room = facts.n_places
    for prepared, selected in evals:
        execution = prepared.config.execution
        if n == prepared.config.in_flight < min(execution.hosts or room, room, len(selected.runs)):
            key = "max_concurrent_generation" if execution.max_concurrent_generation else "batch_size"
            return f"; there is room for {count(room)}, but {key} = {count(n)} allows no more"
    return ""


def _loopback_problems(prepared: Prepared) -> Iterator[Problem]:
    """Yield a problem for each model of an eval that nodes would look for on themselves."""
    if prepared.replays:
        return
    models, asks = prepared.models, prepared.source.asks_models
    asked = {"model": models.target} if asks else {}
    if asks and models.baseline is not None:
        asked["baseline"] = models.baseline.target
    if models.judge is not None:
        asked["judge"] = models.judge.target
    for table, target in asked.items():
        for server in target.servers:
            if server.base_url is not None and is_of_this_machine(server.base_url):
                key = f"[{table}] base_url" if target.endpoint is None else f'[[endpoint]] "{target.endpoint}" url'
                text = f'"{server.base_url}" is an address of this machine, which other nodes cannot reach'
                fix = "use an address that all nodes can reach, or run here with --osmosis-engine=local"
                yield Problem(shown(prepared.config.path), f"{key}: {text}; {fix}")


def _answers_that_do_not_travel(prepared: Prepared) -> Iterator[Problem]:
    """Yield a problem for recorded answers that are in no uploaded file: nodes would ask for them again."""
    config, cassette = prepared.config, prepared.models.cassette
    if cassette is None or cassette.mode == "record" or config.execution.ray.workspace != "upload":
        return
    if prepared.commit is not None and cassette.digest is not None:
        text = (
            f"only the files of {prepared.commit.title} are uploaded, and not {shown(cassette.path)} of the workspace"
        )
        yield Problem(shown(config.path), f"{text}; run here with --osmosis-engine=local")


def is_of_this_machine(url: str) -> bool:
    """Return True for a URL of the loopback.

    >>> is_of_this_machine("http://127.0.0.1:8000/v1"), is_of_this_machine("http://10.0.0.1:8000/v1")
    (True, False)
    """
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return any(each.is_loopback or each.is_unspecified for each in (address, mapped) if each is not None)
