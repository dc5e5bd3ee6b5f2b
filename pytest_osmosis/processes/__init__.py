"""Child processes that end with the process that started them, and leave nothing behind."""
