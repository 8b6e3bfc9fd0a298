"""Embedding methods that the paper compares with; one file per method."""
