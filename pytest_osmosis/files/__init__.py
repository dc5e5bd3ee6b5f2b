"""Files that others wrote: opened without ever waiting, read as text, and recognised by their first bytes."""
