"""What an eval shows: in the terminal, as Markdown, as annotations on GitHub."""
