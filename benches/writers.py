#!/usr/bin/env python3
"""Compares `warpfeed pack` with the dataset writers of other libraries, on the same images.

    python benches/writers.py IMAGES                   all writers, as a table in Markdown
    python benches/writers.py IMAGES mds litdata       these writers only
    python benches/writers.py IMAGES --kill 0.4        also tests recovery after a worker is killed

IMAGES is a folder of class folders of JPEGs. Every image is linked --copies times, so the source
uses the disk space of one copy. With --side, the images are shrunk first. Each writer runs two processes,
unless its row says otherwise. The output is written to a temporary folder in --work. The output takes a little more
space than all images together, and is removed at the end.

The columns are: seconds that the whole command takes, including imports; seconds until the output
is on disk (some writers do not sync their files); CPU seconds of all processes; bytes written; and
the number of samples that the writer's own library reads back (for tars of pack and img2dataset: that
`tarfile` reads back), with the number of distinct samples. The script runs only on Linux.

With --kill SHARE, the busiest process receives SIGKILL once the fraction SHARE of the bytes has been written. Then the
same command runs again in the same folder. A command that takes longer than --patience times its usual duration, plus
20 s, is killed and reported.

The environment variable WARPFEED selects the executable to use instead of the one in the Python
package. If a writer's library is not installed, the script prints a message and skips the writer.
Measured versions: mosaicml-streaming 0.13.0, litdata 0.2.76, megatron-energon 7.4.1, img2dataset
1.47.0.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

WORKERS = 2
SHARD = 64 << 20


def images(source):
    return sorted(path for path in source.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))


def key_of(source, path):
    return str(path.relative_to(source).with_suffix(""))


def warpfeed(*arguments):
    program = os.environ.get("WARPFEED", f"{sys.executable} -m warpfeed").split()
    return [*program, *map(str, arguments)]


def together(*commands):
    """Runs commands concurrently. Exits if any of them fails."""
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    codes = [process.wait() for process in running]
    if any(codes):
        sys.exit(f"exit codes {codes}")


class Pack:
    """warpfeed pack"""

    options = ("--shard-size", SHARD)

    def write(self, source, out):
        pack = warpfeed("pack", source, out / "x.tar", *self.options, "--workers", 1)
        together(*([*pack, "--part", f"{part}/{WORKERS}"] for part in range(WORKERS)))
        together(warpfeed("pack", "--merge", out / "x.tar"))

    def keys(self, out):
        together(warpfeed("inspect", out))
        keys = []
        for shard in sorted(out.glob("*.tar")):
            with tarfile.open(shard) as tar:
                keys += [member.name.removesuffix(".jpg") for member in tar if member.name.endswith(".jpg")]
        return keys


class PackAlone(Pack):
    """warpfeed pack, one process with one worker"""

    def write(self, source, out):
        together(warpfeed("pack", source, out / "x.tar", *self.options, "--workers", 1, "--part", "0/1"))
        together(warpfeed("pack", "--merge", out / "x.tar"))


class PackBytes(Pack):
    """warpfeed pack --keep-bytes"""

    options = (*Pack.options, "--keep-bytes")


class Mds:
    """streaming.MDSWriter, two processes, then merge_index"""

    needs = "streaming"

    def write(self, source, out):
        from multiprocessing import Process

        from streaming.base.util import merge_index

        paths = images(source)
        parts = [
            Process(target=self.part, args=(source, paths[part::WORKERS], out / str(part))) for part in range(WORKERS)
        ]
        for part in parts:
            part.start()
        for part in parts:
            part.join()
        if any(part.exitcode for part in parts):
            sys.exit(f"exit codes {[part.exitcode for part in parts]}")
        merge_index(str(out), keep_local=True)

    @staticmethod
    def part(source, paths, out):
        import streaming

        columns = {"key": "str", "image": "bytes"}
        with streaming.MDSWriter(out=str(out), columns=columns, size_limit=SHARD) as writer:
            for path in paths:
                writer.write({"key": key_of(source, path), "image": path.read_bytes()})

    def keys(self, out):
        import streaming

        return [sample["key"] for sample in streaming.StreamingDataset(local=str(out), batch_size=1, shuffle=False)]


class LitData:
    """litdata.optimize"""

    needs = "litdata"

    def write(self, source, out):
        import litdata

        # The workers import this file, so their function must be at module level.
        litdata.optimize(
            fn=read_for_litdata, inputs=[(key_of(source, path), str(path)) for path in images(source)],
            output_dir=str(out), chunk_bytes=SHARD, num_workers=WORKERS,
        )  # fmt: skip

    def keys(self, out):
        import litdata

        return [sample["key"] for sample in litdata.StreamingDataset(str(out), shuffle=False)]


def read_for_litdata(values):
    key, path = values
    return {"key": key, "image": pathlib.Path(path).read_bytes()}


class Energon:
    """energon prepare, which indexes existing shards"""

    needs = "megatron"

    def before(self, source, out):
        """Writes the shards. This is not measured."""
        shards, room = [], 0
        for path in images(source):
            if room <= 0:
                shards.append([])
                room = SHARD
            shards[-1].append(path)
            room -= path.stat().st_size
        for number, paths in enumerate(shards):
            with tarfile.open(out / f"x-{number}.tar", "w", dereference=True) as tar:
                for path in paths:
                    tar.add(path, arcname=key_of(source, path).replace("/", "_") + ".jpg")

    def write(self, source, out):
        together([
            str(pathlib.Path(sys.executable).with_name("energon")), "prepare", str(out), "--non-interactive",
            "--num-workers", str(WORKERS), "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset",
        ])  # fmt: skip

    def keys(self, out):
        from megatron import energon

        @energon.stateless
        def cook(sample):
            return energon.Sample(**energon.basic_sample_keys(sample))

        class Keys(energon.DefaultTaskEncoder):
            decoder = None
            cookers = [energon.Cooker(cook)]

        # Iterating over energon's training dataset never ends, unlike a validation dataset.
        samples = energon.get_val_dataset(
            out, split_part="train", worker_config=energon.WorkerConfig.default_worker_config(0), batch_size=None,
            task_encoder=Keys(),
        )  # fmt: skip
        return [sample.__key__ for sample in energon.get_loader(samples)]


class Img2Dataset:
    """img2dataset with file:// URLs, without re-encoding"""

    needs = "img2dataset"

    def write(self, source, out):
        from img2dataset import download

        urls = out.with_name("urls.csv")
        paths = images(source)
        urls.write_text("url\n" + "".join(f"file://{path}\n" for path in paths))
        shards = max(sum(path.stat().st_size for path in paths) // SHARD, WORKERS)
        download(
            url_list=str(urls), input_format="csv", url_col="url", output_folder=str(out), output_format="webdataset",
            processes_count=WORKERS, thread_count=8, number_sample_per_shard=-(-len(paths) // shards),
            resize_mode="no", disable_all_reencoding=True, incremental_mode="incremental", user_agent_token=None,
        )  # fmt: skip

    def keys(self, out):
        keys = []
        for shard in sorted(out.glob("*.tar")):
            with tarfile.open(shard) as tar:
                keys += [json.load(tar.extractfile(member))["url"] for member in tar if member.name.endswith(".json")]
        return keys


WRITERS = {
    "pack-alone": PackAlone(), "pack": Pack(), "keep-bytes": PackBytes(), "mds": Mds(), "litdata": LitData(),
    "energon": Energon(), "img2dataset": Img2Dataset(),
}  # fmt: skip


def prepared(options):
    """Creates the source folder, with links to the images or to smaller versions of them. Returns
    its path."""
    source, originals = options.work / "source", options.work / "originals"
    if source.exists():
        return source
    for number, path in enumerate(images(options.images)):
        original = originals / path.parent.name / path.name
        original.parent.mkdir(parents=True, exist_ok=True)
        if options.side:
            from PIL import Image

            with Image.open(path) as image:
                image = image.convert("RGB")
                image.thumbnail((options.side, options.side))
                image.save(original, quality=90)
        else:
            shutil.copyfile(path, original)
        for copy in range(options.copies):
            link = source / path.parent.name / f"{copy:03}-{number:05}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(original, link)
    return source


def environment(out):
    """Returns an environment whose temporary folder is next to `out`, because LitData first writes
    its chunks there."""
    temporary = out.with_name("temporary")
    temporary.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(temporary)}


def start(name, source, out):
    command = [sys.executable, __file__, "--one", name, str(source), str(out)]
    with open(out.with_name("log"), "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment(out))


def ended(process, seconds=None):
    """Returns the exit code (None if the process was killed after `seconds`), the duration, and the
    CPU seconds."""
    begun, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    seconds = time.perf_counter() - begun
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return code, seconds, cpu_seconds


def descendants(pid):
    """Returns the CPU time and the process ID of each descendant. A descendant may end during the
    call."""
    results = []
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in map(int, children.read_text().split()):
                fields = pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
                results += [(int(fields[11]) + int(fields[12]), child), *descendants(child)]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return results


def size(folder):
    """Returns the size of a folder in bytes. A writer may rename or remove files during the call."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_size
            except FileNotFoundError:
                pass
    return total


def last(text, out):
    """Returns the last line that a writer printed, such as its error, without the name of the
    temporary folder."""
    lines = text.replace(str(out), "OUT").replace("|", "/").splitlines()
    lines = [line.strip() for line in lines if not line.startswith("exit codes")]
    return next((line[:160] for line in reversed(lines) if line), "")


def counted(name, out, patience=None):
    """Reads the output with the writer's library. Returns the number of samples and the number of
    distinct samples, or None, and the error, if any."""
    count = [sys.executable, __file__, "--count", name, str(out)]
    try:
        process = subprocess.run(
            count, check=False, capture_output=True, text=True, timeout=patience, env=environment(out)
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"still running after {patience:.0f} s"
    if process.returncode:
        return None, last(process.stderr, out) or f"exit code {process.returncode}"
    return json.loads(process.stdout.splitlines()[-1]), None


def fresh(options, name):
    out = options.work / name / "out"
    shutil.rmtree(out.parent, ignore_errors=True)
    out.mkdir(parents=True)
    return out


def written(options, name, source):
    """Runs a writer. Returns the table cells, the seconds and bytes, and the output folder."""
    out = fresh(options, name)
    if hasattr(WRITERS[name], "before"):
        WRITERS[name].before(source, out)
    before = size(out)
    os.sync()
    begun = time.perf_counter()
    code, seconds, cpu_seconds = ended(start(name, source, out))
    os.sync()
    synced = time.perf_counter() - begun
    if code:
        log = out.with_name("log").read_text(errors="replace")
        sys.exit(f"{log[-4000:]}\n{name}: exit code {code}")
    written = size(out) - before
    cells = f"{seconds:.1f}", f"{synced:.1f}", f"{cpu_seconds:.1f}", f"{written:,}", said(counted(name, out))
    return cells, (seconds, written), out


def said(result):
    (count, invalid) = result
    return f"cannot be read ({invalid})" if count is None else f"{count[0]:,} samples, {count[1]:,} different"


def killed(options, name, source, usual):
    """Kills a process during a run, and runs the command again. `usual` contains the seconds and
    the bytes of an uninterrupted run."""
    out = fresh(options, name)
    if hasattr(WRITERS[name], "before"):
        WRITERS[name].before(source, out)
    before, (seconds, complete) = size(out), usual
    process, workers = start(name, source, out), []
    # Count the bytes in every folder that the writer uses.
    while process.poll() is None and (size(out.parent) - before < options.kill * complete or not workers):
        time.sleep(0.05)
        workers = descendants(process.pid)
    try:
        # The busiest process is a worker rather than a parent that waits for workers.
        os.kill(max(workers)[1], signal.SIGKILL)
    except (ValueError, ProcessLookupError):
        process.kill()
        process.wait()
        return ["ended before a process was killed"] * 4
    patience = options.patience * seconds + 20

    def how(process):
        code, seconds, _ = ended(process, patience)
        if code == 0:
            return f"succeeds after {seconds:.1f} s"
        if code is None:
            return f"hangs, killed after {seconds:.0f} s"
        because = last(out.with_name("log").read_text(errors="replace"), out)
        return f"fails after {seconds:.1f} s" + (f" ({because})" if because else "")

    first, result = how(process), said(counted(name, out, patience))
    return first, result, how(start(name, source, out)), said(counted(name, out, patience))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="?", type=pathlib.Path)
    parser.add_argument("writers", nargs="*", metavar="writer", help=", ".join(WRITERS))
    parser.add_argument("--copies", type=int, default=100, help="number of links to each image")
    parser.add_argument("--side", type=int, default=0, help="shrink the longer side to this many pixels; 0 leaves images unchanged")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds; each round runs every writer once")
    parser.add_argument("--kill", type=float, metavar="SHARE", help="kill a process after this fraction of the bytes")
    parser.add_argument("--patience", type=float, default=3, help="kill a command after this multiple of its usual duration, plus 20 s")
    parser.add_argument("--work", type=pathlib.Path, help="folder for the output")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--count", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, source, out = options.one
        return WRITERS[name].write(pathlib.Path(source), pathlib.Path(out))
    if options.count:
        keys = list(WRITERS[options.count[0]].keys(pathlib.Path(options.count[1])))
        return print(json.dumps([len(keys), len(set(map(str, keys)))]))
    if options.images is None:
        parser.error("no folder of images: pass a folder of class folders that contain JPEGs")
    options.work = pathlib.Path(tempfile.mkdtemp(dir=options.work))
    try:
        source = prepared(options)
        names = options.writers or list(WRITERS)
        for name in list(names):
            needs = getattr(WRITERS[name], "needs", None)
            if needs is not None and importlib.util.find_spec(needs) is None:
                print(f"{name}: {needs} is not installed", file=sys.stderr)
                names.remove(name)
        sizes = [path.stat().st_size for path in images(source)]
        print(f"{len(sizes):,} images, {sum(sizes):,} bytes\n")
        print("| writer | seconds | on disk | CPU seconds | bytes | read back |")
        print("|---|---|---|---|---|---|", flush=True)
        usual = {}
        for _ in range(options.rounds):
            for name in names:
                cells, usual[name], out = written(options, name, source)
                print("| " + " | ".join([WRITERS[name].__doc__, *cells]) + " |", flush=True)
                shutil.rmtree(out.parent)
        if options.kill is None:
            return
        print("\n| writer, one process killed | after the kill | read back | same command again | read back |")
        print("|---|---|---|---|---|", flush=True)
        for name in names:
            cells = killed(options, name, source, usual[name])
            print("| " + " | ".join([WRITERS[name].__doc__, *cells]) + " |", flush=True)
            shutil.rmtree(options.work / name)
    finally:
        shutil.rmtree(options.work)


if __name__ == "__main__":
    main()
