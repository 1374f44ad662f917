"""Slow, obvious twins of what kasuri computes fast. They import no kernel and no engine."""
