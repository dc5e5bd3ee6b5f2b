"""What a command line says of evals: which ones, with which options."""
