"""The tests of an eval: their collection, node ids and reports, the exit status, and pytest's cache."""
