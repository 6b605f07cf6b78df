"""Time and memory, side by side with the peers that are installed: `python -m benchmarks --help`."""
