"""What plays: pure functions from what was seen to a command, and from memory to better weights."""

# Whichever part is imported first, the built-in ones are registered in the same order.
from grue.agents import catalogue as catalogue
