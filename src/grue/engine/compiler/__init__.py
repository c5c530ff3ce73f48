"""Turns a TextWorld game into arrays that ``grue.engine.compiled`` steps."""
