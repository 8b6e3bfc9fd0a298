"""File formats that several sources share: IDX, CIFAR batches, pickles of arrays, pictures."""
