"""Training steps by method, memory, the data pipeline, attacks, verification and grid throughput, side by side."""
