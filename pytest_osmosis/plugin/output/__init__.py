"""Output of evals: lines in the terminal, and a Markdown page."""
