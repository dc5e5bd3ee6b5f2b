"""Records -> statistics -> the published JSON, and the same file read back."""
