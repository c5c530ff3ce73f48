"""Figures, statistics, claims and pages, made from records."""
