#!/usr/bin/env python3
"""Runs the benchmarks and regenerates the tables of the pages. Needs Python 3.10.

    python3 benches/figures all --photographs DIR              measures every table that this machine can, then `render`
    python3 benches/figures measure host --photographs DIR     a machine without a GPU: 5 minutes
    python3 benches/figures bundle OUT --photographs DIR       files for a GPU machine without Rust
    python3 benches/figures measure device training --cores 16 --bundle OUT    on the GPU machine: 8 minutes
    python3 benches/figures measure device --cores 4,1 --add --bundle OUT      7 minutes
    python3 benches/figures measure training --cores 4 --add --bundle OUT      4 minutes
    python3 benches/figures measure requests --bundle OUT                      2 minutes
    python3 benches/figures render                             writes the tables into the Markdown
    python3 benches/figures check                              fails if a table differs from the measurement

`measure` stores the result of every round in benches/figures/GROUP.json, with machine, date and
commit. `render` writes the tables between `<!-- figures:NAME -->` and `<!-- /figures -->`. It also
copies the tables marked with `<!-- result:NAME -->` in benches/RESULTS.md, and marks tables that
are older than the measured code. `check` lists the older tables, and fails if a page states a rate,
a latency or a speed-up outside of a table.

DIR is any folder of JPEGs. Other loaders are measured if the interpreter given by `--python` has their packages;
otherwise their cells stay empty. `measure host` without `--program` and `bundle` need Rust. `bundle` also needs maturin
and Pillow. `all` runs both on a machine with a GPU, and takes half an hour there.
"""

import argparse
import pathlib
import sys

import host
import device
import pages
import record

GROUPS = {
    "host": host.measure,
    "device": device.measure,
    "requests": device.requests,
    "training": device.train,
}


def main():
    parser = argparse.ArgumentParser(
        prog="python3 benches/figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="fail if a table differs from the measurement")
    commands.add_parser("render", help="write the tables into the Markdown")
    bundle_parser = commands.add_parser("bundle", help="build and collect the files for a machine without Rust")
    bundle_parser.add_argument("out", type=pathlib.Path)
    bundle_parser.add_argument("--photographs", type=pathlib.Path, required=True, help="a folder of JPEGs")
    bundle_parser.add_argument("--count", type=int, default=250, help="number of photographs to include")
    all_parser = commands.add_parser("all", help="measure every group that this machine can, and render the tables")
    all_parser.add_argument("--photographs", type=pathlib.Path, required=True, help="a folder of JPEGs")
    measure_parser = commands.add_parser("measure", help="measure groups of figures")
    measure_parser.add_argument("groups", nargs="+", choices=GROUPS, metavar="group", help=", ".join(GROUPS))
    measure_parser.add_argument("--photographs", type=pathlib.Path, help="host: a folder of JPEGs")
    measure_parser.add_argument("--bundle", type=pathlib.Path, help="on a device: the output of `bundle`")
    for command, limit in ((all_parser, 3600), (measure_parser, 520)):
        command.add_argument(
            "--python", default=sys.executable, help="interpreter with the packages of the other loaders"
        )
        command.add_argument(
            "--program", type=pathlib.Path, help="host: a built `warpfeed`; without it cargo builds one"
        )
        command.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/figures"), help="dataset folder")
        command.add_argument("--out", type=pathlib.Path, default=pages.HERE, help="folder for GROUP.json")
        command.add_argument("--rounds", type=int, default=0, help="default: 3")
        command.add_argument("--cores", type=cores, default=(16, 4, 1), help="device, training: default: 16,4,1")
        command.add_argument(
            "--add", action="store_true", help="add figures to GROUP.json, such as other numbers of cores"
        )
        command.add_argument(
            "--keep-sweep",
            action="store_true",
            help="device, training: keep the sweep of DALI in GROUP.json if the GPU and DALI's version are the same",
        )
        command.add_argument("--limit", type=float, default=limit, help="seconds after which no step is started")
    options = parser.parse_args()
    if options.command == "check":
        sys.exit(pages.check())
    if options.command == "render":
        sys.exit(pages.render())
    if options.command == "bundle":
        sys.exit(make_bundle(options))
    if options.command == "all":
        sys.exit(measure_all(options))
    for group in options.groups:
        required_option = "photographs" if group == "host" else "bundle"
        if getattr(options, required_option) is None:
            parser.error(f"measure {group} needs --{required_option}")
    sys.exit(measure_groups(options, options.groups))


def make_bundle(options):
    import bundle  # needs Pillow, which the other commands do not

    return bundle.make(options)


def cores(text):
    return sorted(map(int, text.split(",")), reverse=True)


def measure_groups(options, groups):
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    return max(GROUPS[group](options) for group in groups)


def measure_all(options):
    """Measures all tables that this machine can, writes them into the pages, and lists older
    tables."""
    failed = measure_groups(options, ["host"])
    if record.gpu():
        make_bundle(argparse.Namespace(out=options.work / "bundle", photographs=options.photographs, count=250))
        options.bundle = options.work / "bundle"
        failed |= measure_groups(options, ["device", "requests", "training"])
    else:
        print("this machine has no GPU: the tables of device, requests and training keep their earlier figures")
    return failed | pages.render()


if __name__ == "__main__":
    main()
