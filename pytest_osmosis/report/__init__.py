"""What people read: records and results -> lines of text. All formatting of numbers is in `numbers`."""
