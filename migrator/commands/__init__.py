"""One module for each verb of the command line: arguments in, one call, results out."""
