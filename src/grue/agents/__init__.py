"""Agents, gates and explorers."""

# Registers the built-in parts in the same order, whichever module is imported first.
from grue.agents import catalogue as catalogue
