"""Indelible: ownership watermarks for neural networks that survive attempts to remove them."""

__version__ = "0.1.0"
