"""Engine hosts on a Ray cluster. The engine does not know where a host is: it gets connections, as to local ones.

    pytest's process                     the bridge                     a node
    ClusterHosts, RemoteConnection  <->  Actors (Ray's driver)     <->  HostActor, one for a host and its scorer
                    frames on pipes            calls of actors            the pipes of unchanged host programs

Only the bridge, a child process, imports Ray as a driver: Ray ends its driver's process when the head of the cluster is
lost, and takes signals, threads and descriptors. Ray places each actor by its resources and labels. A host and its
scorer have one, because processes that are placed one by one may take all the places that their scorers wait for.
"""
