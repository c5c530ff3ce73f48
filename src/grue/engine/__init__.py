"""Environments with pure ``reset`` and ``step``; see ``make``."""
