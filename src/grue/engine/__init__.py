"""How a game steps: ``make`` gives an environment with pure ``reset`` and ``step``."""
