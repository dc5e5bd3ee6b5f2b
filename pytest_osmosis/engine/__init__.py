"""The parent side of an eval run: dispatch, hosts' lives, journal, outcomes. It owns one thread and no event loop."""
