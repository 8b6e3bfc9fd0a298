"""Lists of methods: name, what it does, paper, cost, defaults - from the registry, for people or as JSON."""

import argparse

from indelible.base.methods import Method
from indelible.base.registry import MethodInfo, Registry
from indelible.cli.options import emit

__all__ = ["list_methods"]


def list_methods(arguments: argparse.Namespace, registry: Registry[MethodInfo]) -> int:
    """Print every method of ``registry``."""
    documents, lines = [], []
    for info in registry.entries():
        value: Method = info.build()
        defaults = value.to_json()
        documents.append(
            {
                "name": info.name, "title": info.title, "paper": info.paper, "summary": info.summary,
                "cost": info.cost, "defaults": defaults,
            }
        )  # fmt: skip
        shown = " ".join(f"{name}={value}" for name, value in defaults.items())
        lines += [
            f"{info.name:10} {info.title} ({info.paper})",
            f"           {info.summary}",
            f"           cost: {info.cost}",
            f"           defaults: {shown}",
            "",
        ]
    emit(arguments, documents, "\n".join(lines).rstrip())
    return 0
