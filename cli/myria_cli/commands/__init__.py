"""The commands, by subject; each module registers its own."""
