"""Shares of a whole GPU by NVIDIA's Multi-Process Service (MPS), where MIG may not be changed: no memory isolation."""
