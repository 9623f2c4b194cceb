"""Renderings of what a log holds: data in, text out."""
