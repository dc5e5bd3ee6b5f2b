"""The tests of an eval: collected, named, reported, remembered."""
