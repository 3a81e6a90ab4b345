"""Build the pages as a site with search, into site/: ``python docs/make_site.py`` (``make docs``, ``make check``).

It first writes the pages that are not committed, of all help texts and of all recipes. It fails for a link or an anchor
that is dead, which Zensical finds in links between pages and this script in links to pictures and other files.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"<(?:a|img|link|script)\b[^>]*?\b(?:href|src)=\"?([^\s\">]+)")
GENERATORS = ("make_cli.py", "make_recipes.py")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def write_pages() -> None:
    """Write the pages that are made of the program alone, each by a process of its own, since one sets variables."""
    for script in GENERATORS:
        subprocess.run([sys.executable, ROOT / "docs" / script], check=True)


def build() -> None:
    """Build the site, and end with what Zensical finds."""
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        told = COLOUR.sub("", done.stdout)
        sys.exit(told.partition("Traceback")[0])


def dead_links(site: Path) -> Iterator[str]:
    """Yield each link of a page to a file that the site does not have."""
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":
            continue
        for link in dict.fromkeys(LINK.findall(page.read_text("utf-8"))):
            parts = urlsplit(link)
            target = page.parent / unquote(parts.path)
            if not (parts.scheme or parts.netloc) and parts.path and not target.is_file():
                yield f"{page.relative_to(site)}: {link}"


if __name__ == "__main__":
    write_pages()
    build()
    if dead := list(dead_links(ROOT / "site")):
        sys.exit("links to files that are not there:\n" + "\n".join(dead))
