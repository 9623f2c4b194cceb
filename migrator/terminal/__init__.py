"""Where a command meets its caller: the console, the files it writes, signals, processes beside it."""
