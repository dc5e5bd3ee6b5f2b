"""All that is stored and published, declared once: readers, writers and checks are made from these declarations."""
