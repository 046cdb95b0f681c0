"""
The report in a browser, as a phone, a desktop and a printer show it.
"""

import pytest

from tests.integration.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

# The contrast of WCAG 2 between two colours as the browser says them.
CONTRAST = """
(() => {
  const light = text => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number)
      .map(part => part / 255)
      .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return Math.min(...[...document.querySelectorAll("p, li, td, h2, a, .tile b, .tile span")]
    .filter(each => each.offsetParent !== null)
    .map(each => light(getComputedStyle(each).color))
    .map(ink => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)));
})()
"""
# What reaches beyond the page, unless it is in something that scrolls.
OUTSIDE = """
[...document.querySelectorAll("body *")]
  .filter(each => !each.closest("nav, svg") && each.getBoundingClientRect().right > innerWidth + 1)
  .map(each => each.outerHTML.slice(0, 80))
"""
# The graph is hidden on a phone, where its names would be too small.
DRAWN = "[...document.querySelectorAll('.chart:not([hidden])')].every(each => each.querySelector('svg path'))"


@pytest.fixture(scope="module")
def page(mined_log):
    browser = Browser()
    page = browser.page((mined_log[0] / "out/report.html").as_uri())
    page.until("document.querySelectorAll('section').length > 10 && " + DRAWN)
    yield page
    browser.stop()


@pytest.mark.parametrize(
    ("width", "scheme", "media"),
    [(390, "light", ""), (390, "dark", ""), (1280, "light", ""), (1280, "dark", ""), (794, "dark", "print")],
)
def test_report_is_readable(page, width, scheme, media):
    """
    On a phone, a desktop and paper, light and dark, nothing is cut at the side, every chart is drawn, and the
    contrast of text is what WCAG 2 asks for.
    """
    page.ask(
        "Emulation.setEmulatedMedia",
        media=media,
        features=[{"name": "prefers-color-scheme", "value": scheme}],
    )
    page.ask(
        "Emulation.setDeviceMetricsOverride",
        width=width, height=900, deviceScaleFactor=1, mobile=width < 500,
    )  # fmt: skip
    page.until(DRAWN)

    assert [] == page.run(OUTSIDE)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run(CONTRAST) >= 4.5
    assert ("rgb(255, 255, 255)" if media or scheme == "light" else "rgb(18, 22, 29)") == page.run(
        "getComputedStyle(document.body).backgroundColor"
    )


def test_a_table_without_headings_can_be_sorted(page):
    """
    On a phone a table is a list without headings: a menu sorts its rows, and a button turns the order.
    """
    page.ask("Emulation.setDeviceMetricsOverride", width=390, height=900, deviceScaleFactor=1, mobile=True)
    page.until("document.querySelector('#talkers .stacked select')")
    page.run("""(() => {
      const by = document.querySelector("#talkers .stacked select");
      by.value = [...by.options].find(each => each.text === "bytes").value;
      by.dispatchEvent(new Event("change"));
    })()""")
    shown = "[...document.querySelectorAll('#talkers .stacked td:first-child')].map(each => each.innerText)"

    falling = page.run(shown)
    page.run("document.querySelector('#talkers .stacked .sort button').click()")

    assert len(falling) > 1
    assert "ascending" == page.run("document.querySelector('#talkers th[aria-sort]').ariaSort")
    assert falling != page.run(shown)


def test_finding_leads_to_its_section(page):
    """
    What is wrong is the first section, and each of its sentences links to a section that is there.
    """
    assert "overview" == page.run("document.querySelector('section').id")
    links = "[...document.querySelectorAll('ol.striking a')]"
    assert page.run(f"{links}.length") > 0
    assert page.run(f"{links}.every(each => document.querySelector(each.getAttribute('href')))")
