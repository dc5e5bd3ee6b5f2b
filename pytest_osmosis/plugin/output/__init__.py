"""Output of evals: lines in the terminal, a Markdown page, annotations on GitHub."""
