"""A run from file to files: cells read, a map learned, all that came of it in one directory, with a record."""
