"""Numbers, paths, lists and untrusted text in messages. This room imports no other room."""
