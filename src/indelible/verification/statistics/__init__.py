"""Exact statistics for label-only answers: pure functions of counts, for hits, for a codebook, and query by query.

None of them knows a model, a key or an image; :mod:`indelible.verification.procedures` asks the questions and hands
over the counts. Tails are incomplete beta functions of ``scipy.special``: exact far out, and without the slow import of
``scipy.stats``.
"""
