"""Adds the repository's pages to the site, and adapts their Markdown, which is written for GitHub.

Relative links between pages become links within the site. Relative links to other files in the
repository become links to GitHub. A link to a missing file causes a warning, and a warning fails a
strict build.
"""

import ast
import importlib.util
import logging
import posixpath
import re
import shutil
import subprocess
from pathlib import Path

from mkdocs.structure.files import File

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUST = ROOT / "target" / "doc"
PROGRAM = ROOT / "target" / "debug" / "warpfeed"
FORGE = "https://github.com/warpfeed/warpfeed"
log = logging.getLogger("mkdocs.hooks.warpfeed")


def module(name):
    """Imports a module from this folder, without caching it, so that `mkdocs serve` notices changes."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", HERE / f"{name}.py")
    imported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(imported)
    return imported


plots = module("plots")

# Paths of the pages in the repository, with their paths on the site.
PAGES = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benches/RESULTS.md": "results.md",
    "benches/peers/README.md": "peers.md",
    **{f"docs/{page.name}": page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"},
    **{f"docs/site/api/{page.name}": f"api/{page.name}" for page in (HERE / "api").glob("*.md")},
    "docs/site/rust.md": "rust.md",
    "docs/site/command-line.md": "command-line.md",
}
SOURCES = {site: source for source, site in PAGES.items()}
TRACKED = set(
    subprocess.run(
        # Include files that are not committed yet.
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True,
    ).stdout.splitlines()
)  # fmt: skip
FOLDERS = {parent.as_posix() for file in TRACKED for parent in Path(file).parents}
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$\n?", re.M | re.S)
RUST_HERE = '<a href="doc/warpfeed/index.html">Open the reference</a>, with all features.'
RUST_ABSENT = (
    "This copy of the site does not include the Rust reference. Run `cargo doc --no-deps --all-features --open` to "
    "build and open it."
)
HELP_ABSENT = (
    "This copy of the site does not include the help of the commands. Run `warpfeed COMMAND --help` to read it."
)
TABS = {"rust": "Rust", "python": "Python"}


def on_files(files, config):
    for source, site in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if site == "api/index.md":
            text += unplaced()
        file = File.generated(config, site, content=text)
        files.append(file)
        for image in IMAGE.findall(text):
            if "://" not in image:
                image = resolved(source, image)
                if files.get_file_from_path(image) is None:
                    files.append(File.generated(config, image, abs_src_path=str(ROOT / image)))
    files.append(File.generated(config, "palette.css", content=palette()))
    # Assistants look for llms.txt at the root of a site.
    files.append(File.generated(config, "llms.txt", abs_src_path=str(ROOT / "docs" / "llms.txt")))
    return files


def on_page_markdown(markdown, page, config, files):
    source = SOURCES[page.file.src_uri]
    page.edit_url = f"{FORGE}/edit/main/{source}"
    # This page has many words and few answers, so searches should list it last.
    if source == "benches/RESULTS.md":
        page.meta.setdefault("search", {"boost": 0.2})
    # Handle code separately from prose, because links and tables in code must not be replaced.
    parts, end, run = [], 0, []
    for fence in FENCE.finditer(markdown):
        between = markdown[end : fence.start()]
        if between.strip():
            parts += [*tabbed(run), prose(source, page.file.src_uri, between)]
            run = []
        # Reduce "rust,no_run" and "python run" to the language, and remove lines that rustdoc hides.
        language = re.split(r"[ ,]", fence[1].strip())[0]
        code = re.sub(r"^# .*\n|^#\n", "", fence[2], flags=re.M) if language == "rust" else fence[2]
        run.append((language, code))
        end = fence.end()
    return "".join([*parts, *tabbed(run), prose(source, page.file.src_uri, markdown[end:])])


def tabbed(run):
    """Formats consecutive code blocks. A Rust block and a Python block that follow each other become two
    tabs."""
    parts = []
    while run:
        languages = [language for language, _ in run[:2]]
        if sorted(languages) == sorted(TABS):
            for language, code in run[:2]:
                indented = re.sub(r"^(?=.)", "    ", f"```{language}\n{code}```", flags=re.M)
                parts.append(f'=== "{TABS[language]}"\n\n{indented}\n\n')
            run = run[2:]
        else:
            language, code = run[0]
            parts.append(f"```{language}\n{code}```\n\n")
            run = run[1:]
    return parts


def prose(source, site, text):
    text = LINK.sub(lambda link: f"]({target(source, site, link[1])})", text)
    text = text.replace("<!-- rust reference -->", RUST_HERE if built() else RUST_ABSENT)
    if "<!-- help of the program -->" in text:
        text = text.replace("<!-- help of the program -->", program() if PROGRAM.exists() else HELP_ABSENT)
    return plots.BLOCK.sub(lambda block: f"\n{plots.plot(block[1])}\n\n{block[2]}", text)


def target(source, site, link):
    """Converts a link on a page to the corresponding link on the site."""
    if link.startswith(FORGE):
        path = re.match(rf"{FORGE}/(?:blob|tree)/main/([^#]+)", link)
        if path and path[1].rstrip("/") not in TRACKED | FOLDERS:
            log.warning("%s: %s is not in the repository", source, link)
        return link
    if re.match(r"[a-z]+:|#", link):
        return link
    path, _, heading = link.partition("#")
    heading = heading and f"#{heading}"
    path = resolved(source, path)
    if path in PAGES:
        return posixpath.relpath(PAGES[path], posixpath.dirname(site) or ".") + heading
    if IMAGE.search(f"![]({link})") and path.endswith((".png", ".svg", ".jpg")):
        return posixpath.relpath(path, posixpath.dirname(site) or ".")
    if path in TRACKED:
        return f"{FORGE}/blob/main/{path}{heading}"
    if path in FOLDERS:
        return f"{FORGE}/tree/main/{path}"
    log.warning("%s: broken link %s: no such file in the repository", source, link)
    return link


def resolved(source, path):
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def palette():
    """Returns CSS with the colors of the page that `warpfeed report` writes, for both color schemes."""
    report = (ROOT / "cli/src/commands/report.html").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", report, re.S)
    light = re.sub(r"color-scheme:[^;]*;", "", light)
    return f"[data-md-color-scheme=default] {{{light}}}\n[data-md-color-scheme=slate] {{{dark}}}\n"


def program():
    """Returns the help texts of the command-line tool and of each of its commands."""

    def help_text(*command):
        return subprocess.run([PROGRAM, *command, "--help"], check=True, capture_output=True, text=True).stdout

    text = help_text()
    commands = re.findall(r"^  ([a-z-]+) ", text.partition("\nCommands:\n")[2].partition("\n\n")[0], re.M)
    sections = [("warpfeed", text), *((name, help_text(name)) for name in commands if name != "help")]
    return "\n".join(f"## {name}\n\n```text\n{text.rstrip()}\n```\n" for name, text in sections)


def built():
    """Returns whether `cargo doc` has run."""
    return (RUST / "warpfeed" / "index.html").exists()


def public():
    """Returns the public names of the Python package, and the modules that users import by name."""
    package = ROOT / "python" / "warpfeed"
    for node in ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = [f"warpfeed.{name}" for name in ast.literal_eval(node.value) if name != "__version__"]
    return [*names, "warpfeed.Image", *(f"warpfeed.{file.stem}" for file in package.glob("[a-z]*.py"))]


def unplaced():
    """Returns Markdown for the public names that no page documents. It is appended to the first page of the
    reference."""
    shown = []
    for page in (HERE / "api").glob("*.md"):
        shown += re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M)
    for name in {name for name in shown if shown.count(name) > 1}:
        log.warning("%s is documented on several pages in docs/site/api; keep only one of them", name)
    missing = [name for name in public() if name not in shown]
    if missing:
        log.info("only the first page of the Python reference documents these names: %s", ", ".join(missing))
    return "".join(f"\n::: {name}\n" for name in missing)


def on_post_build(config):
    """Copies the output of `cargo doc`, if there is one, and checks every link of the finished pages."""
    site = Path(config.site_dir)
    if built():
        shutil.copytree(RUST, site / "rust" / "doc", dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
    else:
        log.info("the site has no Rust reference; to add it, run `cargo doc --no-deps --all-features`")
    if not PROGRAM.exists():
        log.info("the site has no help of the commands; to add it, run `cargo build -p warpfeed-cli`")
    for dead in module("links").dead(site):
        log.warning("%s", dead)
