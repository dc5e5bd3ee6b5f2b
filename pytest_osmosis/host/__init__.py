"""The engine host: a child process that loads user code, rolls out and scores. JSON lines in, JSON lines out.

`core` does the work and knows neither pipes nor processes nor pytest; `main` is the process around it.
"""
