"""Phrases that certificates and reports share, in English and Japanese."""
