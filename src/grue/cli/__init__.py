"""The command line: one file a command group; nothing else knows the terminal."""
