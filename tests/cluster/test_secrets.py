"""Secrets of an eval, looked for in all that Ray writes and shows: its session folder, and the API of its dashboard."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.cluster.clusters import HAS_DASHBOARD, RayCluster, until
from tests.plugin.workspaces import Workspace

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_DASHBOARD, reason="the dashboard needs ray[default]"),
]

ANSWER_S = 60.0
ALL = "?detail=1&limit=10000"
ACTORS, NODES = f"/api/v0/actors{ALL}", f"/api/v0/nodes{ALL}"
STATES = ("actors", "jobs", "nodes", "objects", "placement_groups", "runtime_envs", "tasks", "workers")
PAGES = (
    *(f"/api/v0/{state}{ALL}" for state in STATES),
    *(f"/api/v0/{state}/summarize" for state in ("actors", "objects", "tasks")),
    "/api/v0/cluster_events",
    "/api/v0/cluster_metadata",
    "/api/v0/tasks/timeline",
    "/api/cluster_status",
    "/api/component_activities",
    "/api/jobs/",
    "/api/version",
    "/events",
    "/logical/actors",
    "/nodes?view=summary",
    "/nodes?view=hostNameList",
    "/test/dump",
)
"""The pages of the API that need no id: what the dashboard shows, and what `ray list` and `ray summary` read."""
AGENT = """
import asyncio, os, sys

LENGTHS = {{"FROM_SHELL": 24, "FROM_FILE": 23, "FROM_ENV": 22}}

async def rollout(ctx):
    assert {{name: len(os.environ.get(name, "")) for name in LENGTHS}} == LENGTHS
    assert not os.path.exists(".env")
    for name in LENGTHS:
        print(os.environ[name])
        os.write(2, os.environ[name].encode() + b"\\n")
    open({root!r} + f"/begun-{{ctx.row_index}}", "x").close()
    while not os.path.exists({root!r} + "/go"):
        await asyncio.sleep(0.02)
    await ctx.chat(ctx.prompt)
"""
CANARIES = {
    "FROM_SHELL": "canary-5f0e-of-the-shell",
    "FROM_FILE": "canary-93bb-of-the-file",
    "FROM_ENV": "canary-c2d7-of-the-env",
}


class Dashboard:
    def __init__(self, url: str) -> None:
        self._url = f"http://{url}"
        self._opener = build_opener(ProxyHandler({}))
        self.earlier = self.names()
        """Actors and jobs that were there before, which are not looked at."""

    def get(self, page: str) -> bytes:
        try:
            with self._opener.open(f"{self._url}{page}", timeout=ANSWER_S) as answer:
                data: bytes = answer.read()
        except HTTPError as error:
            error.add_note(f"{page}: {error.read()!r}")
            raise
        return data

    def json(self, page: str) -> Any:
        return json.loads(self.get(page))

    def everything(self) -> dict[str, bytes]:
        """Return all pages, and those of each node, actor and job. Logs are read as files."""
        nodes = self.json(NODES)["data"]["result"]["result"]
        of_nodes = {f"/nodes/{node['node_id']}" for node in nodes if node["state"] == "ALIVE"}
        return {page: self.get(page) for page in {*PAGES} | of_nodes | self.names() - self.earlier}

    def names(self) -> set[str]:
        jobs = {f"/api/jobs/{job['submission_id'] or job['job_id']}" for job in self.json("/api/jobs/")}
        return jobs | {f"/logical/actors/{each}" for each in self.json("/logical/actors")["data"]["actors"]}


def holders(found: dict[str, bytes], text: str) -> list[str]:
    return sorted(name for name, content in found.items() if text.encode() in content)


def written(cluster: RayCluster) -> dict[str, bytes]:
    found = {}
    for path in cluster.folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            found[str(path.relative_to(cluster.folder))] = path.read_bytes()
    return found


def test_secrets_are_in_nothing_that_ray_writes_or_shows(
    workspace: Workspace, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = Dashboard(cluster.dashboard)
    workspace.write("agent.py", AGENT.format(root=str(workspace.root)))
    workspace.write(".env", f"FROM_FILE={CANARIES['FROM_FILE']}\n")
    monkeypatch.setenv("FROM_SHELL", CANARIES["FROM_SHELL"])
    workspace.eval(
        "x",
        2,
        agent={"agent": "agent:rollout"},
        evaluation={"batch_size": 2},
        env={"FROM_ENV": CANARIES["FROM_ENV"]},
        secrets={"required": ["FROM_SHELL", "FROM_FILE"]},
        execution={"engine": "ray", "hosts": 2, "ray": {"address": cluster.address, "workspace": "upload"}},
    )
    session = workspace.start("--osmosis-config=configs/eval/x.toml", "--osmosis-secrets-file=.env", "-rA")
    try:
        until(lambda: len([*workspace.root.glob("begun-*")]) == 2, "for two rollouts")
        during = dashboard.everything()
    finally:
        (workspace.root / "go").touch()
    assert session.wait() == 0, session.output
    found = {**during, **{f"{page} afterwards": data for page, data in dashboard.everything().items()}}
    found.update(written(cluster))

    actors = json.loads(during[ACTORS])["data"]["result"]["result"]
    assert any(actor["class_name"] == "OsmosisHost" for actor in actors), "the actors of the eval are not shown"
    assert any(name.endswith("agent.py") for name in written(cluster)), "nothing was uploaded"
    assert not holders(found, CANARIES["FROM_SHELL"])
    assert not holders(found, CANARIES["FROM_FILE"])
    [config] = holders(found, CANARIES["FROM_ENV"])  # it is a file of the workspace that was uploaded
    assert config.endswith("/configs/eval/x.toml")
