"""Surgery on any ``nn.Module``: layers found by type, switched by context managers, restored bit for bit."""
