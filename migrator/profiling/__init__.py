"""Service profiles measured on this machine: what, by which processes, what is kept of it, and the rows."""
