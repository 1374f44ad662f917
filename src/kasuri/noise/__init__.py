"""Exact noise: keystreams, samplers, and noise as a value."""
