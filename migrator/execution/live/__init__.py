"""Runs whose requests are real: real processes answer them, and real models learn."""
