"""Lists of methods: name, what it does, paper, cost, defaults - from the registry, for people or as JSON."""

import argparse
import sys
from typing import Any

from indelible.base.methods import Method
from indelible.base.plugins import MethodRegistry
from indelible.cli.options import emit

__all__ = ["list_methods", "warn_of_broken"]


def list_methods(arguments: argparse.Namespace, registry: MethodRegistry) -> int:
    """Print every method of ``registry``, those of other packages included; what cannot be loaded is told aside."""
    warn_of_broken(registry)
    documents, lines = [], []
    for info in registry.entries():
        value: Method = info.build()
        defaults = value.to_json()
        cpu = dict(getattr(info.build, "cpu_settings", {}))
        documents.append(
            {
                "name": info.name, "title": info.title, "paper": info.paper, "summary": info.summary,
                "cost": info.cost, "defaults": defaults, "preset_cpu": cpu,
            }
        )  # fmt: skip
        shown = " ".join(f"{name}={value}" for name, value in defaults.items())
        lines += [
            f"{info.name:10} {info.title} ({info.paper})",
            f"           {info.summary}",
            f"           cost: {info.cost}",
            f"           defaults: {shown}",
        ]
        if cpu:
            lines.append(f"           --preset cpu: {' '.join(f'{name}={_short(of)}' for name, of in cpu.items())}")
        lines.append("")
    emit(arguments, documents, "\n".join(lines).rstrip())
    return 0


def warn_of_broken(registry: MethodRegistry) -> None:
    """Say on standard error which methods of other packages could not be loaded, and why."""
    for failed in registry.load_installed():
        print(f"indelible: warning: {' '.join(failed.split())}", file=sys.stderr)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
