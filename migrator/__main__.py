"""``python -m migrator`` is the command line."""

from migrator.cli import main

if __name__ == "__main__":
    main()
