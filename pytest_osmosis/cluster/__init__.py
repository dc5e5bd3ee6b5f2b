"""Engine hosts on a Ray cluster. The engine does not know where a host is: it gets connections, as to local ones.

    pytest's process                     the bridge                     a node
    ClusterHosts, RemoteConnection  <->  Relays (Ray's driver)     <->  Relay, an actor
                    frames on pipes            calls of actors            the pipes of unchanged host programs

Only the bridge, a child process, imports Ray as a driver: Ray ends its driver's process when the head of the cluster is
lost, and takes signals, threads and descriptors. A relay starts several hosts and their scorers, because hosts that are
placed one by one may take all the places that their scorers wait for.
"""
