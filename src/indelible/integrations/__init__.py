"""APP inside the trainers of other libraries: one file per trainer, each behind an extra of its own name.

Import the file you need: ``indelible.integrations.lightning`` or ``indelible.integrations.transformers``.
"""
