"""``indelible data``: list data sets, describe one, or fetch it."""

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from indelible.cli.options import common, emit, explained

if TYPE_CHECKING:
    from indelible.data.sources import Source

HELP = "list data sets, describe one, or fetch it (checked, resumable)"
EXAMPLES = [
    "indelible data list",
    "indelible data info cifar10",
    "indelible data fetch cifar10",
    "indelible data fetch cifar10 --from binary",
    "indelible data fetch cifar100 --from ~/downloads/cifar-100-python.tar.gz",
    "indelible data fetch mnist --root /data/indelible",
]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action, work, text in (
        ("list", _list, "show all named data sets"),
        ("info", _info, "show content, licence and sources of one data set"),
        ("fetch", _fetch, "download one data set; run it again to continue after an interruption"),
    ):
        own = [line for line in EXAMPLES if f" data {action}" in line]
        command = actions.add_parser(action, **explained(text, own))
        command.set_defaults(run=work)
        if action != "list":
            command.add_argument("name", metavar="NAME", help="name of the data set")
        if action == "fetch":
            command.add_argument(
                "--from", dest="place", metavar="PLACE_OR_PATH",
                help="source to fetch from (see `indelible data info`), or a folder, archive or file that you have",
            )  # fmt: skip
        command.add_argument(
            "--root", metavar="DIR", help="folder of fetched data sets (default: $INDELIBLE_DATA or ~/.cache/indelible)"
        )
        common(command)


def _list(args: argparse.Namespace) -> int:
    from indelible.data.sources import SOURCES

    entries = [_describe(source, args.root) for source in SOURCES.entries()]
    lines = [f"{'name':<14} {'train':>7} {'test':>7} {'classes':>7}  {'image':<9} {'here':<9} title"]
    for entry in entries:
        image = "x".join(map(str, entry["shape"]))
        lines.append(
            f"{entry['name']:<14} {entry['train']:>7,} {entry['test']:>7,} {len(entry['classes']):>7}  {image:<9} "
            f"{entry['state']:<9} {entry['title']}"
        )
    lines.append("A folder of images or an .npz file works in place of a name.")
    return emit(args, entries, "\n".join(lines))


def _info(args: argparse.Namespace) -> int:
    from indelible.data.sources import SOURCES

    source = SOURCES[args.name]
    entry = _describe(source, args.root)
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
        root = f" --root {shlex.quote(args.root)}" if args.root else ""
        lines.append(f"Fetch it with:  indelible data fetch {source.name}{root}")
    return emit(args, entry, "\n".join(lines))


def _fetch(args: argparse.Namespace) -> int:
    from indelible.data.catalog import fetch, load

    folder = fetch(args.name, args.root, args.place)
    train, test = load(args.name, args.root)
    found = {"name": args.name, "folder": str(folder), "train": len(train), "test": len(test)}
    return emit(
        args, found, f"{args.name}: {len(train):,} training and {len(test):,} test images, verified, in {folder}"
    )


def data_states() -> dict[str, str]:
    """Return where each named data set is: ``built in``, ``yes`` for one that was fetched, ``no``."""
    from indelible.data.sources import SOURCES

    return {source.name: str(_describe(source, None)["state"]) for source in SOURCES.entries()}


def _describe(source: "Source", root: str | None) -> dict[str, Any]:
    from indelible.data.install import MANIFEST
    from indelible.data.sources.source import data_root

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
