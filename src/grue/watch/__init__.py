"""A page to play games, watch agents and understand them. ``docs/watch.md`` is its manual."""
