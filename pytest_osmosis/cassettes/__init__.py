"""Cassettes: the recorded exchanges of an eval's runs with models, from which the same eval is replayed.

A *cassette* is a file of JSON lines, a header and then an exchange a line, sorted: the same run gives the same bytes,
in whatever order its requests ended. An *exchange log* holds the same exchanges in the order in which they ended, and
is only ever appended to. `reader` describes both.
"""
