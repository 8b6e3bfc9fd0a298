"""``indelible data``: which data sets there are, what is in them, and how to get them."""

import argparse
import json
import shlex
from typing import TYPE_CHECKING, Any

from indelible.cli import common

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
    for action, text in (
        ("list", "show all named data sets"),
        ("info", "show what is in one, its licence, and where it can be had"),
        ("fetch", "bring one to disk; run it again to go on after an interruption"),
    ):
        lines = "\n".join(f"  {line}" for line in EXAMPLES if f" data {action}" in line)
        command = actions.add_parser(
            action,
            help=text,
            description=text,
            epilog=f"examples:\n{lines}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if action != "list":
            command.add_argument("name", metavar="NAME", help="the data set's name")
        if action == "fetch":
            command.add_argument(
                "--from", dest="place", metavar="PLACE_OR_PATH",
                help="one of the set's places, or a folder, archive or file that is here already",
            )  # fmt: skip
        command.add_argument(
            "--root", metavar="DIR", help="where fetched sets live (default: $INDELIBLE_DATA or ~/.cache/indelible)"
        )
        common(command)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    actions = {"list": _list, "info": _info, "fetch": _fetch}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from indelible.data.sources import SOURCES

    entries = [_describe(source, args.root) for source in SOURCES.entries()]
    if args.json:
        print(json.dumps(entries, indent=2))
        return 0
    print(f"{'name':<14} {'train':>7} {'test':>7} {'classes':>7}  {'image':<9} {'here':<9} title")
    for entry in entries:
        image = "x".join(map(str, entry["shape"]))
        print(
            f"{entry['name']:<14} {entry['train']:>7,} {entry['test']:>7,} {len(entry['classes']):>7}  {image:<9} "
            f"{entry['state']:<9} {entry['title']}"
        )
    print("A folder of images or an .npz file works in place of a name.")
    return 0


def _info(args: argparse.Namespace) -> int:
    from indelible.data.sources import SOURCES

    source = SOURCES[args.name]
    entry = _describe(source, args.root)
    if args.json:
        print(json.dumps(entry, indent=2))
        return 0
    print(f"{source.name}: {source.title}")
    print(f"  images    {source.train:,} train, {source.test:,} test, {'x'.join(map(str, source.shape))}")
    print(f"  classes   {len(source.classes)}: {', '.join(source.classes[:10])}{', ...' * (len(source.classes) > 10)}")
    print(f"  licence   {source.licence}")
    print(f"  cite      {source.citation}")
    print(f"  homepage  {source.homepage}")
    print(f"  here      {entry['state']}{': ' + entry['folder'] if entry['state'] != 'no' else ''}")
    for place in source.places:
        checked = "" if all(file.verified for file in place.files) else " (digest as published)"
        print(f"  --from {place.name:<8} {place.title}{checked}")
    if entry["state"] == "no":
        root = f" --root {shlex.quote(args.root)}" if args.root else ""
        print(f"Fetch it with:  indelible data fetch {source.name}{root}")
    return 0


def _fetch(args: argparse.Namespace) -> int:
    from indelible.data.catalog import fetch, load

    folder = fetch(args.name, args.root, args.place)
    train, test = load(args.name, args.root)
    if args.json:
        found = {"name": args.name, "folder": str(folder), "train": len(train), "test": len(test)}
        print(json.dumps(found, indent=2))
    else:
        print(f"{args.name}: {len(train):,} training and {len(test):,} test images, verified, in {folder}")
    return 0


def _describe(source: "Source", root: str | None) -> dict[str, Any]:
    from indelible.data.install import MANIFEST
    from indelible.data.roots import data_root

    folder = source.embedded or data_root(root) / source.name
    here = "built in" if source.embedded else "yes" if (folder / MANIFEST).is_file() else "no"
    return {
        "name": source.name,
        "title": source.title,
        "train": source.train,
        "test": source.test,
        "shape": list(source.shape),
        "classes": list(source.classes),
        "licence": source.licence,
        "citation": source.citation,
        "homepage": source.homepage,
        "places": {place.name: place.title for place in source.places},
        "state": here,
        "folder": str(folder),
    }
