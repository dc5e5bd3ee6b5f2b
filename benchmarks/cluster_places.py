"""Measure what it takes the bridge of a Ray cluster to place hosts, by their number.

    python -m benchmarks.cluster_places [--nodes 12,100] [--cpus 64]

The cluster is simulated in the same process (`tests.cluster.simulated`): its actors answer at once. So the figures are
those of the code that places hosts and hears that they were started, without Ray. A node has a CPU for each host, and
an actor has eight hosts.
"""

from __future__ import annotations

import argparse
import time

from pytest_osmosis.cluster.frames import Kind
from tests.cluster.simulated import SimulatedCluster

MOST_S = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster_places", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--nodes", default="12,100")
    parser.add_argument("--cpus", type=int, default=64)
    options = parser.parse_args()
    for n_nodes in map(int, options.nodes.split(",")):
        n_hosts = n_nodes * options.cpus
        with SimulatedCluster(n_nodes, options.cpus).running() as cluster:
            began, cpu = time.monotonic(), time.process_time()
            for number in range(1, n_hosts + 1):
                cluster.open(number)
            cluster.wait_for(Kind.PLACED, n_hosts, MOST_S)
            took_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
        print(f"{n_nodes} nodes x {options.cpus} = {n_hosts:,} hosts: {cpu_s:.2f} s of CPU, {took_s:.2f} s", flush=True)


if __name__ == "__main__":
    main()
