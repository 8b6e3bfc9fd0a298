"""What all other packages build on: errors, files, registry, records, seeds, progress."""
