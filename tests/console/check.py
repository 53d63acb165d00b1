"""Checks the web console in a real Chromium, on three nodes with data.

The ring is drawn, rows are found and paged with the keyboard alone, names that are markup do
nothing, a compaction is stopped, and nodes that die are seen. See docs/console.md.
"""

import argparse
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

sys.path.append(str(Path(__file__).resolve().parent.parent / "monitoring"))

from ring import NODES, DevCluster, Failed, Node, Ports, configure, say, wait_for  # noqa: E402

TOKEN = "open sesame"
SETTINGS = {
    "AdminToken": TOKEN,
    "CompactionThroughputInMBPerSecond": 1,
    "SlowRequestsInMillis": 1,
}
HOSTILE = "<img src=x onerror='window.hacked = 1; alert(1)'>"
LONG = "k" * 9000
ROWS = 45
PATIENCE = 30_000
SCHEMES = ("light", "dark")
WIDTHS = {"desktop": 1280, "phone": 390, "narrow": 360}

# Counts what the policy has kept from loading or running.
WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation',
  (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""

# Texts whose contrast with the nearest background is less than 4.5.
PALE = """() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = channels(colour).map((it) => it / 255)
      .map((it) => (it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if ((channels(colour)[3] ?? 1) > 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const pale = (node) => {
    const style = getComputedStyle(node);
    const [a, b] = [light(style.color), light(behind(node))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < 4.5;
  };
  const hasText = (node) => [...node.childNodes].some((it) => it.nodeType === 3 && it.data.trim());
  return [...document.body.querySelectorAll('*:not(svg *):not(option)')]
    .filter((node) => node.checkVisibility() && !node.disabled && hasText(node) && pale(node))
    .map((node) => node.textContent);
}"""

# Parts that a screen reader has no name for.
NAMELESS = """() => {
  const named = (node) => node.ariaLabel || node.getAttribute('aria-labelledby') ||
    node.labels?.length || node.textContent.trim() || node.caption;
  return [...document.querySelectorAll('input, select, button, a, table, nav, section, svg[role]')]
    .filter((node) => node.checkVisibility() && !named(node)).map((node) => node.outerHTML);
}"""


def main():
    """Runs the check; the exit code is 1 if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path, help="the program `alexandra`")
    parser.add_argument("--screenshots", type=Path, help="writes pictures into this folder")
    options = parser.parse_args()
    browser = shutil.which("chromium")
    if not browser:
        sys.exit("there is no Chromium here: run tests/setup.sh --all")
    # Nodes must not outlive the check.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    directory = Path(tempfile.mkdtemp(prefix="alexandra-console-"))
    program = str(options.program.resolve())
    ports = Ports()
    nodes = [Node(program, directory, ports, number + 1) for number in range(NODES)]
    try:
        start(nodes, DevCluster(program, directory, ports))
        fill(nodes[0])
        with sync_playwright() as playwright:
            # A sandbox of its own needs rights that a container may not have.
            arguments = ["--no-sandbox"]
            browser = playwright.chromium.launch(executable_path=browser, args=arguments)
            Check(browser, nodes, options.screenshots).run()
    except (Failed, AssertionError) as failure:
        say(f"failed: {failure}\nlogs are in {directory}")
        sys.exit(1)
    finally:
        for node in nodes:
            node.end()
    shutil.rmtree(directory)


def start(nodes, cluster):
    """Starts the nodes of a development cluster as processes that can be killed."""
    try:
        wait_for("all nodes serve", lambda: all(node.serves() for node in nodes))
    finally:
        cluster.stop()
    for node in nodes:
        # A development cluster has no token.
        node.config.write_text(configure(node.config.read_text(), SETTINGS))
        node.start()


def run(node, statements):
    """Runs statements of the command line at a node."""
    command = [node.program, "cli", "--host", node.address, "--port", str(node.ports.thrift)]
    command += ["--admin-port", str(node.ports.admin), "--stop-on-error", "-f", "/dev/stdin"]
    done = subprocess.run(command, input=statements, text=True, capture_output=True, timeout=120)
    if done.returncode:
        raise Failed(f"cli: {done.stdout[-500:]} {done.stderr}")


def fill(node):
    """Writes rows, names that are markup, super columns, and files that take long to compact."""
    people = "".join(
        f"set BloggyAppy.Authors['author {number:02}']['email'] = 'a{number}@example.com';\n"
        f"set BloggyAppy.Authors['author {number:02}']['country'] = 'Utopia';\n"
        for number in range(ROWS)
    )
    quoted = HOSTILE.replace("'", "''")
    long = "a long text " * 100
    comment = "BloggyAppy.Comments['first post'][timeuuid(2026-11-29 12:00:00)]"
    run(node, people + f"""
        set BloggyAppy.Authors['hostile']['{quoted}'] = '{quoted}';
        set BloggyAppy.Authors['hostile']['long'] = '{long}';
        set BloggyAppy.Authors['{quoted}']['name'] = 'a key';
        set BloggyAppy.Authors['{LONG}']['name'] = 'a long key';
        set {comment}['commenter'] = 'ann';
        set {comment}['text'] = 'Well said.';
    """)
    for _ in range(2):
        values = (random.randbytes(60_000).hex() for _ in range(40))
        run(node, "".join(
            f"set BloggyAppy.BlogEntries['entry {random.random()}']['text'] = '{value}';\n"
            for value in values
        ))
        post(node, "flush", '{"keyspace": "BloggyAppy"}')


def post(node, path, body):
    """Has a node do something."""
    url = f"http://{node.address}:{node.ports.admin}/api/v1/{path}"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    try:
        request = urllib.request.Request(url, body.encode(), headers)
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as error:
        raise Failed(f"{path}: {error.status} {error.read().decode()}") from None


class Check:
    """The story, in one page after the other."""

    def __init__(self, browser, nodes, screenshots):
        self.browser, self.nodes, self.screenshots = browser, nodes, screenshots
        self.url = f"http://{nodes[0].address}:{nodes[0].ports.admin}/"
        self.faults = []

    def run(self):
        """All of it."""
        page = self.open("desktop", "light")
        self.ring(page)
        self.rows_by_keyboard(page)
        self.hostile(page)
        self.super_columns(page)
        self.forget(page)
        self.graphs(page)
        self.stop_compaction(page)
        for width in WIDTHS:
            for scheme in SCHEMES:
                self.look(width, scheme)
        self.deaths(page)
        self.login()
        if self.faults:
            raise Failed(f"the page made mistakes: {self.faults}")
        say("no violation of the content security policy, no mistake of a script")

    def open(self, width, scheme, url=None):
        """A page whose mistakes are collected."""
        size = {"width": WIDTHS[width], "height": 850}
        context = self.browser.new_context(viewport=size, color_scheme=scheme)
        context.set_default_timeout(PATIENCE)
        context.add_init_script(WATCH)
        page = context.new_page()
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda message: self.note(message.text))
        page.goto(url or self.url)
        expect(page.locator("#ring table")).to_be_visible(timeout=PATIENCE)
        return page

    def note(self, text):
        """Keeps messages about the policy; a node that is down makes others."""
        if "Content Security Policy" in text or "Error:" in text:
            self.faults.append(text)

    def check_policy(self, page):
        """Fails if the policy had to keep something out."""
        self.faults += page.evaluate("violations")

    def ring(self, page):
        """The picture has an arc for each node, the table what is known of it."""
        picture = page.get_by_role("img", name=f"Ring of {NODES} nodes, {NODES} up")
        expect(picture).to_be_visible()
        arcs = picture.locator("path.arc")
        sizes = [arcs.nth(at).bounding_box() for at in range(arcs.count())]
        if len(sizes) != NODES or any(size["width"] < 20 for size in sizes):
            raise Failed(f"the arcs of the ring are {sizes}")
        table = page.get_by_role("table", name="Nodes, in the order of the ring")
        for node in self.nodes:
            row = table.get_by_role("row").filter(has_text=node.address)
            expect(row).to_contain_text("Up, Normal")
            expect(row).to_contain_text("33.3 %")
            expect(row).to_contain_text("Alexandra")
        say("the ring is drawn, with owners, load, state and version")

    def rows_by_keyboard(self, page):
        """Rows are refused, then shown with the token, page by page, without a mouse."""
        keys = page.keyboard
        keys.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        keys.press("Enter")
        self.tab_to(page, "#family")
        keys.type("BloggyAppy.Authors")
        self.tab_to(page, "#key")
        keys.press("Enter")
        expect(page.locator("#access-message")).to_contain_text("rows are shown only with")
        expect(page.locator("#token")).to_be_focused()
        keys.type("wrong")
        keys.press("Enter")
        expect(page.locator("#access-message")).to_contain_text("not that of AdminToken")
        expect(page.locator("#result table")).to_have_count(0)
        keys.press("Control+A")
        keys.type(TOKEN)
        keys.press("Enter")
        seen = set()
        while True:
            message = page.locator("#result-message")
            expect(message).to_contain_text("row")
            expect(page.locator("#result-title")).to_be_focused()
            found = page.locator("#result tbody th").all_inner_texts()
            if seen.intersection(found):
                raise Failed(f"rows are on two pages: {seen.intersection(found)}")
            seen.update(found)
            if "more follow" not in message.inner_text():
                break
            first = found[0]
            self.tab_to(page, "#next")
            keys.press("Enter")
            expect(page.locator("#result tbody th").first).not_to_have_text(first)
        if len(seen) != ROWS + 3:
            raise Failed(f"{len(seen)} rows instead of {ROWS + 3}: {sorted(seen)}")
        log = (self.nodes[0].directory.parent.parent / "node1.log").read_text()
        if not re.search(r"audit\] the holder of AdminToken of \S+ reads 20 rows", log):
            raise Failed("the audit log does not tell of the reads")
        say(f"{len(seen)} rows are paged by keyboard, with the token only, and noted in the log")

    def tab_to(self, page, selector):
        """Presses the Tab key until an element has the focus."""
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("(it) => document.activeElement?.matches(it)", selector):
                return
        raise Failed(f"the Tab key does not reach {selector}")

    def find(self, page, family, key):
        """Shows a row by its key."""
        page.get_by_label("Column family").select_option(family)
        page.get_by_label("Row key").fill(key)
        page.get_by_role("button", name="Show rows").click()

    def hostile(self, page):
        """Markup in names, keys and values is shown as text."""
        self.find(page, "BloggyAppy.Authors", "hostile")
        row = page.get_by_role("row").filter(has_text=HOSTILE)
        expect(row).to_have_count(1)
        expect(row.get_by_text(HOSTILE)).to_have_count(2)
        page.get_by_text("a long text a long text").first.click()
        expect(page.get_by_text("a long text " * 100).last).to_be_visible()
        self.find(page, "BloggyAppy.Authors", HOSTILE)
        expect(page.get_by_role("cell", name="a key")).to_be_visible()
        expect(page.locator("#place")).to_contain_text(HOSTILE)
        if page.locator("main img").count() or page.evaluate("window.hacked"):
            raise Failed("a name has become markup")
        self.find(page, "BloggyAppy.Authors", LONG)
        expect(page.get_by_role("cell", name="a long key")).to_be_visible()
        if len(page.locator("#place").inner_text()) > 1000:
            raise Failed("a long key is not cut")
        self.find(page, "BloggyAppy.Authors", "nobody")
        expect(page.locator("#result-message")).to_contain_text("no such row")
        say("a row is found by its key, and markup in names and values is text")

    def super_columns(self, page):
        """From the row to a super column, and back by the path."""
        self.find(page, "BloggyAppy.Comments", "")
        page.get_by_role("button", name="first post").click()
        name = page.locator("#result tbody th")
        expect(name).to_contain_text("2026-11-29")
        name.get_by_role("button").click()
        expect(page.get_by_role("cell", name="Well said.")).to_be_visible()
        page.locator("#place").get_by_role("button", name="first post").click()
        expect(page.get_by_role("table", name="Super columns")).to_be_visible()
        say("super columns open, and the path leads back")

    def forget(self, page):
        """What was shown goes with the rights, and what slow calls were about."""
        slow = page.locator("#slow-table")
        expect(slow).to_contain_text("BloggyAppy.")
        page.get_by_text("Access", exact=True).click()
        page.get_by_role("button", name="Forget both").click()
        expect(slow).not_to_contain_text("BloggyAppy.")
        for part in ("#place", "#result", "#result-message"):
            expect(page.locator(part)).to_be_empty()
        page.get_by_label("Token").fill("\u201copen sesame\u201d")
        page.get_by_role("button", name="Use the token").click()
        self.find(page, "BloggyAppy.Authors", "")
        expect(page.locator("#access-message")).to_contain_text("not that of AdminToken")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Use the token").click()
        self.find(page, "BloggyAppy.Authors", "")
        expect(page.locator("#result table")).to_be_visible()
        say("what was shown is forgotten with the token")

    def graphs(self, page):
        """Calls appear in the graphs."""
        def calls():
            run(self.nodes[0], "get BloggyAppy.Authors['author 01'];\n" * 20)
            return page.locator("figure", has_text="Latency of calls").locator(
                "path[d*='L']").count()

        expect(page.locator("figure")).to_have_count(8)
        wait_for("a line in the graph of latencies", calls)
        expect(page.get_by_role("img", name=re.compile("^Calls of the last 10 minutes.*get"))
               ).to_be_visible()
        say("calls and latencies are drawn")

    def stop_compaction(self, page):
        """A compaction shows its progress, and is stopped by its button."""
        post(self.nodes[0], "compact", '{"keyspace": "BloggyAppy", "wait": false}')
        button = page.get_by_role("button", name="Stop the major compaction of BloggyAppy.Blog")
        expect(button).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_role("progressbar")).to_be_visible()
        self.picture(page, "work")
        button.click()
        expect(page.locator("#work-message")).to_contain_text("is being stopped")
        expect(button).to_have_count(0, timeout=PATIENCE)
        log = (self.nodes[0].directory.parent.parent / "node1.log").read_text()
        if "BlogEntries was not compacted: an operator has stopped it" not in log:
            raise Failed("the log does not tell that the compaction was stopped")
        say("a compaction is stopped")

    def look(self, width, scheme):
        """Nothing scrolls sideways, is too pale, or lacks a name; with data on the page."""
        page = self.open(width, scheme)
        page.get_by_text("Access", exact=True).click()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Use the token").click()
        for key in ("", "hostile"):
            self.find(page, "BloggyAppy.Authors", key)
            expect(page.locator("#result table")).to_be_visible()
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > WIDTHS[width]:
            raise Failed(f"{width}: the page is {wide} wide")
        pale, nameless = page.evaluate(PALE), page.evaluate(NAMELESS)
        if pale or nameless:
            raise Failed(f"{width}, {scheme}: too pale: {pale}; without a name: {nameless}")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != (
            "rgb(245, 247, 246)")
        if dark != (scheme == "dark"):
            raise Failed(f"{scheme} is not followed")
        self.picture(page, f"{width}-{scheme}")
        self.check_policy(page)
        page.context.close()
        say(f"{width}, {scheme}: nothing scrolls sideways, all is legible and has a name")

    def deaths(self, page):
        """Another node dies, then the one that serves the page, which comes back."""
        self.nodes[2].end(signal.SIGKILL)
        expect(page.get_by_role("img", name=f"Ring of {NODES} nodes, {NODES - 1} up")
               ).to_be_visible(timeout=120_000)
        row = page.locator("#ring tbody tr").filter(has_text=self.nodes[2].address)
        expect(row).to_contain_text("✕ Down")
        expect(page.locator("path.arc.down")).to_have_count(1)
        self.picture(page, "node-down")
        self.nodes[0].end(signal.SIGKILL)
        connection = page.locator("#connection")
        expect(connection).to_contain_text("The node does not answer", timeout=PATIENCE)
        self.nodes[0].start()
        expect(connection).not_to_contain_text("does not answer", timeout=60_000)
        self.check_policy(page)
        say("dead nodes are seen, and the page goes on when its node is back")

    def login(self):
        """Where clients log in, their users see the rows that they may read, and no others."""
        node = self.nodes[2]
        options = []
        for name, text in (("passwd", "ann=secret\n"), ("access", "BloggyAppy.<ro>=ann\n")):
            file = node.directory / name
            file.write_text(text)
            options.append(f"-D{name}.properties={file}")
        simple = "org.apache.cassandra.auth.SimpleAuthenticator"
        settings = {"Authenticator": simple, "KeyspaceRights": "true"}
        node.config.write_text(configure(node.config.read_text(), settings))
        # The options stand behind the command.
        node.start("sh", "-c", 'exec "$@" ' + " ".join(options), "sh")
        page = self.open("desktop", "light", f"http://{node.address}:{node.ports.admin}/")
        self.find(page, "BloggyAppy.Authors", "author 01")
        expect(page.get_by_label("User name")).to_be_visible()
        expect(page.locator("#result")).to_be_empty()
        for password, told in (("wrong", "#access-message"), ("secret", "#result table")):
            page.get_by_label("User name").fill("ann")
            page.get_by_label("Password").fill(password)
            page.get_by_role("button", name="Log in").click()
            expect(page.locator(told)).not_to_be_empty(timeout=PATIENCE)
        expect(page.get_by_role("cell", name="a1@example.com")).to_be_visible()
        self.find(page, "Keyspace1.Standard1", "")
        expect(page.locator("#access-message")).to_contain_text("could not be authorized")
        expect(page.locator("#result")).to_be_empty()
        self.check_policy(page)
        say("a user logs in, and sees what it may read")

    def picture(self, page, name):
        """Keeps a picture of the whole page, if somebody wants it."""
        if self.screenshots:
            self.screenshots.mkdir(parents=True, exist_ok=True)
            page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
            page.screenshot(path=self.screenshots / f"{name}.png", full_page=True)


if __name__ == "__main__":
    main()
