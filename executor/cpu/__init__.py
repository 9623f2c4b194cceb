"""A machine's CPU, cut into slices as MIG cuts a GPU: emulated, but each share is real CPU time."""
