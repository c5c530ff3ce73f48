"""Environments with pure ``reset`` and ``step``; ``make.py`` makes them."""
