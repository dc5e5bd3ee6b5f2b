"""Records and results as lines of text. `text.numbers` formats all numbers."""
