"""The verbs of ``migrator gpu``."""
