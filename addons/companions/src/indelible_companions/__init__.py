"""Companions of Indelible: methods to compare with, a suspect, an analysis and a certificate, as an outside package.

Indelible finds them by the entry points of this package. In Python, import them from their modules.
"""

__version__ = "0.1.0"
