"""Debuggers in user code: `--pdb`, `--trace` and `--osmosis-inline`."""
