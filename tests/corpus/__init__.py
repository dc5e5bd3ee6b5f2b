"""A corpus of commands and of stored eval runs: what they show and leave before a change of the package, and after it.

Nothing of it is stored in git: `cases` is a table of stories, each a chain of commands in one workspace, which any
version of the package can be told. `place` notes all that can be seen of them, `reading` what commands make of the
eval runs that they left, and `planted` shows that a change is noticed. `__main__` says how it is used.
"""
