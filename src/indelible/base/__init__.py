"""What every room of the house stands on: errors, files, registry, records, seeds, progress."""
