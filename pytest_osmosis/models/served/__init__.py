"""The server's side of the models' APIs, as pure functions: requests are read, replies and errors are written."""
