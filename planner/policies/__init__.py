"""Sharing policies to compare: one file, one class each, with what it is taken from and how it was adapted."""
