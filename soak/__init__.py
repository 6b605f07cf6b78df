"""Faults, load and hostile input, by the thousand, with counts: `python -m soak`."""
