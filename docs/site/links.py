"""Finds dead links in the finished site: links and images whose file or anchor does not exist."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.update(filter(None, [attributes.get("id"), attributes.get("name") if tag == "a" else None]))
        for name in ("href", "src"):
            if attributes.get(name):
                self.links.add(attributes[name])


def dead(site):
    """Yields a message for each dead link. Skips the pages below rust/doc, which rustdoc has checked."""
    generated = site / "rust" / "doc"
    pages = {
        file: Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html") if generated not in file.parents
    }
    for file, page in sorted(pages.items()):
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or file.name == "404.html":
                continue
            result = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            result = result / "index.html" if result.is_dir() else result
            anchor = unquote(parts.fragment)
            if not result.exists():
                yield f"{file.relative_to(site)}: broken link {link}: no such file"
            elif anchor and result in pages and anchor not in pages[result].anchors and anchor != "__skip":
                yield f"{file.relative_to(site)}: broken link {link}: no such anchor"


if __name__ == "__main__":
    lines = list(dead(Path(sys.argv[1]).resolve()))
    print("\n".join(lines) or "no dead links")
    sys.exit(bool(lines))
