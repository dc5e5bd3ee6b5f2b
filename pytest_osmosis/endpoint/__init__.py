"""The endpoint: an HTTP server on loopback, through which agents with a client of their own ask the eval's model.

Each rollout has a URL and a key of its own (`rollouts`). `server` listens in the host, from the first use on, and turns
a body into a `ChatRequest` that the rollout sends as it sends those of `ctx.chat`. Whatever runs on this machine can
reach the server, so nothing that it receives may harm the host, and nothing that it answers may hold a key of ours.
"""
