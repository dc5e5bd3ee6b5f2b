"""How numbers, paths and strange text are written. Every room may import it; it imports nothing of ours."""
