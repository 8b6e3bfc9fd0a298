"""Measurements: grids of resumable runs with a record each, their store and engines, and the demo."""
