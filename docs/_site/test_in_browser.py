"""The built site as a reader has it, in headless Chromium: `make docs` runs this after the build.

It skips, with the reason, where there is no built site or no Chromium.
"""

import functools
import http.server
import re
import shutil
import threading
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "out" / "site"
PAGES = [
    "index",
    "start",
    "tutorial",
    "tutorials/own_model",
    "topics",
    "how-to-choose",
    "speed",
    "examples/README",
    "reference/names/inbounds.sgld",
    "results/nmf/README",
]
PHONE = {"width": 400, "height": 800}
DESK = {"width": 1280, "height": 900}
# As WCAG asks for text of the usual size.
LEAST_CONTRAST = 4.5


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    if not (SITE / "index.html").exists():
        pytest.skip("the site is not built: make docs")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """Open a page; at the end nothing may have been said on the console, failed, or asked of another host."""
    contexts, troubles = [], []

    def opened(page, size=DESK, colours="light"):
        context = browser.new_context(viewport=size, color_scheme=colours)
        contexts.append(context)
        tab = context.new_page()
        tab.on(
            "console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None
        )
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on(
            "response",
            lambda answer: troubles.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None,
        )
        tab.on(
            "request",
            lambda asked: None if asked.url.startswith((address, "data:", "blob:")) else troubles.append(asked.url),
        )
        tab.goto(f"{address}/{page}.html", wait_until="networkidle")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_a_phone(page, visit):
    tab = visit(page, PHONE)
    assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    smallest = tab.evaluate(
        "Math.min(...[...document.querySelectorAll('article p, article li, article td')]"
        ".filter(e => e.innerText.trim()).map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert smallest >= 12
    cut = tab.evaluate(
        """[...document.querySelectorAll('article p, article h1, article h2')]
           .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('table, pre, .formula, details'))
           .map(e => e.innerText.slice(0, 80))"""
    )
    assert cut == []


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("page", ["index", "tutorial", "reference/names/inbounds.sgld"])
def test_text_can_be_read_in_both_modes(page, colours, visit):
    tab = visit(page, DESK, colours)
    background = luminance(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (background < 0.2) == (colours == "dark")
    found = tab.evaluate(
        """() => {
          const behind = e => { for (; e; e = e.parentElement) {
            const c = getComputedStyle(e).backgroundColor;
            if (!/rgba\\(.*, 0\\)|transparent/.test(c)) return c; } return 'rgb(255,255,255)'; };
          return [...document.querySelectorAll('article :is(p, code, td, th, caption, h1, h2, pre span, a)')]
            .filter(e => e.innerText && e.innerText.trim() && e.offsetParent)
            .map(e => [getComputedStyle(e).color, behind(e), e.innerText.slice(0, 40)]); }"""
    )
    assert len(found) > 10
    faint = [text for front, back, text in found if contrast(front, back) < LEAST_CONTRAST]
    assert faint == []


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("leimkuhler_matthews", "inbounds.leimkuhler_matthews"),
        ("resume checkpoint", "long-runs"),
        ("pareto-k", "warnings"),
    ],
)
def test_search_finds(words, page, visit):
    tab = visit("index")
    tab.goto(tab.url.replace("index.html", f"search.html?q={words.replace(' ', '+')}"), wait_until="networkidle")
    tab.wait_for_selector("ul.search li a", timeout=20_000)
    addresses = tab.eval_on_selector_all("ul.search li a", "links => links.map(link => link.href)")
    assert any(page in one for one in addresses[:5]), addresses[:5]


def test_the_button_of_the_search_opens_a_field(visit):
    tab = visit("start")
    tab.click("button.search-button__button:visible")
    tab.wait_for_selector(
        "dialog input[type=search]:visible, .search-button__wrapper.show input[type=search]", timeout=10_000
    )


def test_pictures_are_there_and_formulas_are_drawn(visit):
    tab = visit("bounds-and-bias")
    sizes = tab.eval_on_selector_all("article img", "images => images.map(i => i.naturalWidth)")
    assert len(sizes) >= 3
    assert min(sizes) > 0
    assert tab.evaluate("document.querySelector('.formula math').getBoundingClientRect().width") > 100
    assert all(image for image in tab.eval_on_selector_all("article img", "images => images.map(i => i.alt)"))


@pytest.mark.parametrize(
    ("page", "folder", "ending"), [("examples/README", "examples", "py"), ("tutorials", "tutorials", "ipynb")]
)
def test_worked_models_and_tutorials_can_be_taken_along(page, folder, ending):
    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    text = (SITE / f"{page}.html").read_text(encoding="utf-8")
    offered = {address.rpartition("/")[2] for address in re.findall(r'href="([^"]*_downloads/[^"]+)"', text)}
    assert {file.name for file in (SITE.parents[1] / "docs" / folder).glob(f"*.{ending}")} - offered == set()


def test_nothing_in_the_built_pages_is_fetched_from_another_host():
    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    fetched = re.compile(
        r"""<(?:script|img|iframe|source|link(?![^>]*rel="(?:canonical|next|prev|search|index)"))\b[^>]*(?:src|href)=["'](?:https?:)?//"""
    )
    strange = [
        file.relative_to(SITE) for file in SITE.rglob("*.html") if fetched.search(file.read_text(encoding="utf-8"))
    ]
    assert strange == []


def test_every_public_name_has_its_page():
    import inbounds as ib

    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    written = {file.stem.removeprefix("inbounds.") for file in (SITE / "reference" / "names").glob("*.html")}
    names = {name for name in ib.__all__ if not name.startswith("_") and not hasattr(getattr(ib, name), "__path__")}
    modules = {name for name in names if type(getattr(ib, name)).__name__ == "module"}
    assert names - modules <= written


def test_every_page_of_the_reference_has_an_example():
    pages = sorted((SITE / "reference" / "names").glob("*.html"))
    if not pages:
        pytest.skip("the site is not built: make docs")
    assert [page.stem for page in pages if "&gt;&gt;&gt; " not in page.read_text(encoding="utf-8")] == []


def contrast(front, back):
    """Of two colours of CSS, as WCAG defines it."""
    high, low = sorted((luminance(front), luminance(back)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
