"""Measurements: the demo's grid of small runs, and speed; each resumable, each with a record."""
