"""The reader of stored eval runs: in the terminal, in one HTML file, and in a dashboard with the same front end."""
