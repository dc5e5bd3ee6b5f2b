"""The engine host: a child process that loads user code, rolls out and scores. JSON lines in, JSON lines out.

`core` does the work and knows no pipe, no thread of its own and no pytest; `main` is the process around it.
"""
