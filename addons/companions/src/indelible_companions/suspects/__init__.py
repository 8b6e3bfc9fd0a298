"""Suspects behind an address."""
