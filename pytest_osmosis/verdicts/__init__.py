"""What a record is worth: whether a run passed, what a gate says, what a comparison means."""
