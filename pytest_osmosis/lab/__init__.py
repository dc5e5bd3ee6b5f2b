"""The lab: what is tested of a reward function, without pytest.

`target` says which functions of a module are reward functions; `calls` is one call and what came of it; `contract`,
`cases` and `rows` need nothing but the function; the probes under `probes/` look for bugs by calling it, in a child
process (`child`, `process`), on inputs that `examples` finds. What a probe saw is a `Finding`.
"""
