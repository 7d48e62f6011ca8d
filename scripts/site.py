#!/usr/bin/env python3
"""Builds the documentation as a static site with search, and checks its links.

    site.py MDBOOK

MDBOOK is the command. docs/site/SUMMARY.md lists the pages. They are copied to target/site-source with the files that they link
to, in the same folders, so that the links of the repository are those of the site. The result is in target/site.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "target/site-source"
SITE = ROOT / "target/site"
# Folders whose pages must all be in the summary.
PAGES = ["docs", "docs/guides", "docs/adr"]
# A link or a picture of a page, not an address with a scheme and not a section of the page itself.
LINK = re.compile(r"""(?:\]\(|src=")(?![a-z]+:|#)([^)\s"#]+)""")
# mdBook shows these in place of a page that is missing, and in browsers without scripts.
NOT_PAGES = {"404.html", "toc.html"}


def fail(problems):
    for problem in problems:
        print(f"site: {problem}", file=sys.stderr)
    sys.exit(1)


def index(path):
    """The page of a folder has another name on a site."""
    return re.sub(r"\bREADME\.md$", "index.md", path)


def collect():
    """Copies the pages of the summary, and what they link to."""
    summary = (ROOT / "docs/site/SUMMARY.md").read_text()
    listed = [os.path.normpath(f"docs/site/{target}") for target in LINK.findall(summary)]
    existing = [str(page.relative_to(ROOT)) for folder in PAGES for page in sorted((ROOT / folder).glob("*.md"))]
    missing = [page for page in existing if page not in listed]
    if missing:
        fail(f"docs/site/SUMMARY.md does not list {page}" for page in missing)

    shutil.rmtree(SOURCE, ignore_errors=True)
    files = set(listed)
    for page in listed:
        for target in LINK.findall((ROOT / page).read_text()):
            path = os.path.normpath(os.path.join(os.path.dirname(page), unquote(target)))
            if (ROOT / path).is_file() and not path.startswith(".."):
                files.add(path)
    for file in files:
        copy = SOURCE / "src" / index(file)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.endswith(".md"):
            copy.write_text(LINK.sub(lambda link: index(link[0]), (ROOT / file).read_text()))
        else:
            shutil.copy(ROOT / file, copy)
    # The summary is at the root there.
    to_root = lambda link: f"]({index(os.path.normpath('docs/site/' + link[1]))}"
    (SOURCE / "src/SUMMARY.md").write_text(LINK.sub(to_root, summary))
    for file in ["book.toml", "site.css"]:
        shutil.copy(ROOT / "docs/site" / file, SOURCE / file)
    return listed


class Page(HTMLParser):
    """The links and the sections of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.sections = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.sections.add(value)
            elif (tag, name) in {("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")} and value:
                self.links.append(value)


def check_links():
    """What is wrong with the links within the site."""
    pages = {path: Page(path) for path in SITE.rglob("*.html")}
    problems, checked = [], 0
    for path, page in sorted(pages.items()):
        if path.name in NOT_PAGES:
            continue
        for link in dict.fromkeys(page.links):
            if re.match(r"[a-z]+:|//", link):
                continue
            checked += 1
            target, section = urldefrag(link)
            to = pathlib.Path(os.path.normpath(path.parent / unquote(target))) if target else path
            to = to / "index.html" if to.is_dir() else to
            if not to.is_file():
                problems.append(f"{path.relative_to(SITE)}: {link} leads to nothing")
            elif section and to in pages and unquote(section) not in pages[to].sections:
                problems.append(f"{path.relative_to(SITE)}: {link} leads to a section that is not there")
    return checked, problems


def main():
    mdbook = sys.argv[1]
    pages = collect()
    shutil.rmtree(SITE, ignore_errors=True)
    environment = {"MDBOOK_LOG": "warn", **os.environ}
    subprocess.run([mdbook, "build", "--dest-dir", SITE, SOURCE], check=True, env=environment)
    checked, problems = check_links()
    if problems:
        fail(problems)
    print(f"{len(pages)} pages, {checked} links: open target/site/index.html")


main()
