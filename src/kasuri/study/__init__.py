"""What to expect before a release, and how far off one is on data one may look at."""
