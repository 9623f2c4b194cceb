"""Renderings for people and programs: values in, text out."""
