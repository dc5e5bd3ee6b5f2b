"""Text for messages and files: numbers, paths, lists, suggestions, untrusted text, redaction, stacks of user code."""
