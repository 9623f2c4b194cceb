"""MIG geometry, GPUs and clocks: everything that touches a GPU, and nothing that knows of tenants."""
