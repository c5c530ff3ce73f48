"""Z-machine stories: files, code, texts, grammar, proposed commands, Zork I."""
