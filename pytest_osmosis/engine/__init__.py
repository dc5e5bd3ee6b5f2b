"""The parent's side of an eval run: hosts, runs, journal and outcomes. It owns one thread and no event loop."""
