"""Problem files and plan files, read strictly."""
