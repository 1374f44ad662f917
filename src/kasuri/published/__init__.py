"""What may be published: a release, its measurements, and what they say about the truth."""
