"""Tests, as a package: another's of this name, installed beside us, must not be found in its place."""
