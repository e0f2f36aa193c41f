"""Speed held against what it was: `make bench-check`, alone on the machine."""
