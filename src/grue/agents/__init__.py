"""What plays: pure functions from what was seen to a command, and from memory to better weights."""
