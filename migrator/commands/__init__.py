"""One module a verb of the command line: arguments in, one call, an exit code out."""
