"""Real requests between real processes: generator → dispatcher → workers. Nothing here needs torch."""
