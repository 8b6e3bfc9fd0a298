"""``indelible data``: list data sets, describe one, or fetch it."""

import argparse
import shlex
from typing import Any

from indelible.cli.options import emit
from indelible.data.catalog import fetch, load
from indelible.data.install import MANIFEST
from indelible.data.sources import SOURCES
from indelible.data.sources.source import Source, data_root


def run_list(arguments: argparse.Namespace) -> int:
    """Show all named data sets."""
    entries = [_describe(source, arguments.root) for source in SOURCES.entries()]
    lines = [f"{'name':<14} {'train':>7} {'test':>7} {'classes':>7}  {'image':<9} {'here':<9} title"]
    for entry in entries:
        image = "x".join(map(str, entry["shape"]))
        lines.append(
            f"{entry['name']:<14} {entry['train']:>7,} {entry['test']:>7,} {len(entry['classes']):>7}  {image:<9} "
            f"{entry['state']:<9} {entry['title']}"
        )
    lines.append("A folder of images or an .npz file works in place of a name.")
    return emit(arguments, entries, "\n".join(lines))


def run_info(arguments: argparse.Namespace) -> int:
    """Show content, licence and sources of one data set."""
    source = SOURCES[arguments.name]
    entry = _describe(source, arguments.root)
    lines = [
        f"{source.name}: {source.title}",
        f"  images    {source.train:,} train, {source.test:,} test, {'x'.join(map(str, source.shape))}",
        f"  classes   {len(source.classes)}: {', '.join(source.classes[:10])}{', ...' * (len(source.classes) > 10)}",
        f"  licence   {source.licence}",
        f"  cite      {source.citation}",
        f"  homepage  {source.homepage}",
        f"  here      {entry['state']}{': ' + entry['folder'] if entry['state'] != 'no' else ''}",
    ]
    for place in source.places:
        checked = "" if place.verified else " (digest as published)"
        lines.append(f"  --from {place.name:<8} {place.title}{checked}")
    if entry["state"] == "no":
        root = f" --root {shlex.quote(arguments.root)}" if arguments.root else ""
        lines.append(f"Fetch it with:  indelible data fetch {source.name}{root}")
    return emit(arguments, entry, "\n".join(lines))


def run_fetch(arguments: argparse.Namespace) -> int:
    """Download one data set, and check it."""
    folder = fetch(arguments.name, arguments.root, arguments.place)
    train, test = load(arguments.name, arguments.root)
    found = {"name": arguments.name, "folder": str(folder), "train": len(train), "test": len(test)}
    return emit(
        arguments,
        found,
        f"{arguments.name}: {len(train):,} training and {len(test):,} test images, verified, in {folder}",
    )


def data_states() -> dict[str, str]:
    """Return where each named data set is: ``built in``, ``yes`` for one that was fetched, ``no``."""
    return {source.name: str(_describe(source, None)["state"]) for source in SOURCES.entries()}


def _describe(source: Source, root: str | None) -> dict[str, Any]:
    folder = source.embedded or data_root(root) / source.name
    here = "built in" if source.embedded else "yes" if (folder / MANIFEST).is_file() else "no"
    plain = ("name", "title", "train", "test", "licence", "citation", "homepage")
    return {
        **{name: getattr(source, name) for name in plain},
        "shape": list(source.shape),
        "classes": list(source.classes),
        "places": {place.name: place.title for place in source.places},
        "state": here,
        "folder": str(folder),
    }
