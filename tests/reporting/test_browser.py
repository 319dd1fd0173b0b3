"""The page in a real browser, opened from disk."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import fairtopk as ft
from fairtopk.reporting.page import audit_page

from .conftest import write_evil, write_sweep

selenium = pytest.importorskip("selenium")
from selenium import webdriver  # noqa: E402 (only once it is known to be there)
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "chromium and chromedriver are not installed"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (BROWSER and DRIVER), reason=MISSING)]
WORDS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--window-size=1280,900")  # fmt: skip
HANGS = 300.0  # seconds after which a page is taken to hang, on any machine


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for word in WORDS:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    return ft.report(write_evil(write_sweep(tmp_path_factory.mktemp("sweep")))).as_uri()


@pytest.fixture
def page(browser: webdriver.Chrome, report: str) -> Iterator[webdriver.Chrome]:
    """The report as it opens; whatever a test does to it, the browser must not complain."""
    browser.get(report)
    WebDriverWait(browser, HANGS).until(lambda driver: charts(driver) >= 4)
    yield browser
    assert browser.get_log("browser") == []


def charts(driver: webdriver.Chrome) -> int:
    return len(driver.find_elements(By.CSS_SELECTOR, ".chart .main-svg .scatterlayer .trace"))


def captions(driver: webdriver.Chrome) -> list[str]:
    return [one.text for one in driver.find_elements(By.CSS_SELECTOR, "#panels figcaption")]


def await_title(driver: webdriver.Chrome, title: str) -> None:
    """Wait until the first panel's axis has a title."""
    first = "return document.querySelector('#panels .xtitle').textContent"
    WebDriverWait(driver, HANGS).until(lambda driver: driver.execute_script(first) == title)


def shown_table(driver: webdriver.Chrome) -> str:
    (table,) = [
        one
        for one in driver.find_elements(By.CSS_SELECTOR, "[data-table]")
        if one.is_displayed()
    ]
    return table.find_element(By.TAG_NAME, "caption").text


def lose(driver: webdriver.Chrome, percent: float) -> None:
    driver.execute_script(
        "const s = document.getElementById('loss'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input'))",
        percent,
    )


def test_every_chart_is_drawn(page: webdriver.Chrome) -> None:
    for chart in page.find_elements(By.CSS_SELECTOR, ".chart"):
        assert chart.find_elements(By.CSS_SELECTOR, ".scatterlayer .trace")
    assert len(page.find_elements(By.CSS_SELECTOR, "#panels .chart")) == 3  # 10, 20, spread


def test_no_request_leaves_the_file(page: webdriver.Chrome) -> None:
    messages = [json.loads(one["message"])["message"] for one in page.get_log("performance")]
    asked = [
        one["params"]["request"]["url"]
        for one in messages
        if one["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_slider_changes_which_model_is_the_fairest(page: webdriver.Chrome) -> None:
    assert captions(page)[0].startswith("Fairest within 5 %: ng-de, C/n² = 2")
    lose(page, 20)
    assert captions(page)[0].startswith("Fairest within 20 %: kso-red, C/n² = 4")
    lose(page, 0)
    assert captions(page)[0].endswith(": the colour-blind model itself.")


def test_the_switches_change_charts_and_table(page: webdriver.Chrome) -> None:
    await_title(page, "Exposure gap (Eq. 9)@10")
    Select(page.find_element(By.ID, "gap")).select_by_value("rank_exposure_gap")
    await_title(page, "Exposure gap by rank@10")
    assert "Exposure gap by rank." in shown_table(page)
    Select(page.find_element(By.ID, "form")).select_by_value("_mse")
    await_title(page, "Exposure gap by rank, squared@10")
    assert "Exposure gap by rank, squared." in shown_table(page)
    before = charts(page)
    Select(page.find_element(By.ID, "view")).select_by_index(1)
    assert "full catalogue" in shown_table(page)
    WebDriverWait(page, HANGS).until(lambda driver: charts(driver) < before)
    assert page.find_element(By.ID, "form").is_enabled()
    Select(page.find_element(By.ID, "gap")).select_by_value("rsp")  # it has no square
    await_title(page, "Statistical parity (RSP)@10")
    assert "Statistical parity (RSP)." in shown_table(page)
    assert not page.find_element(By.ID, "form").is_enabled()
    Select(page.find_element(By.ID, "view")).select_by_index(0)
    await_title(page, "Exposure gap (Eq. 9), squared@10")


def test_a_method_can_be_hidden(page: webdriver.Chrome) -> None:
    lose(page, 20)
    assert "kso-red" in captions(page)[0]
    boxes = page.find_elements(By.CSS_SELECTOR, "#keys label")
    box = next(one for one in boxes if one.text == "kso-red")
    box.click()
    assert "kso-red" not in captions(page)[0]
    box.click()


def test_names_that_look_like_markup_are_text(page: webdriver.Chrome) -> None:
    assert page.execute_script("return window.hacked") is None
    assert page.find_elements(By.TAG_NAME, "img") == []
    labels = [one.text for one in page.find_elements(By.CSS_SELECTOR, "#view option")]
    assert any("</script><script>window.hacked" in label for label in labels)


def test_a_phone_needs_no_scrolling_to_the_side(page: webdriver.Chrome) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.refresh()
    WebDriverWait(page, HANGS).until(lambda driver: charts(driver) >= 4)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_an_audit_is_drawn_and_switches_its_groups(
    page: webdriver.Chrome, tmp_path: Path
) -> None:
    rows = pl.DataFrame({"q": [n // 6 for n in range(36)], "i": list(range(6)) * 6})
    rows = rows.with_columns(
        s=pl.Series([float(n % 6) for n in range(36)]),
        sex=pl.Series(["f", "f", "m", "m", "m", "f"] * 6),
        age=pl.Series(["<b>old</b>", "young", "<b>old</b>"] * 12),
    )
    found = ft.audit(rows, query="q", item="i", score="s", groups=["sex", "age"], k=[2, 3])
    file = tmp_path / "audit.html"
    file.write_text(audit_page(found.to_dict()), encoding="utf-8")
    page.get(file.as_uri())
    WebDriverWait(page, HANGS).until(lambda driver: charts(driver) >= 5)
    assert page.find_elements(By.CSS_SELECTOR, "#gets .barlayer .trace")
    Select(page.find_element(By.ID, "column")).select_by_index(1)
    Select(page.find_element(By.ID, "k")).select_by_index(1)
    names = [one.text for one in page.find_elements(By.CSS_SELECTOR, "#keys li")]
    assert sorted(names) == ["<b>old</b>", "young"]
    headings = [one.text for one in page.find_elements(By.TAG_NAME, "h3")]
    assert "Lists with the largest gaps, top 3" in headings
    assert "Lists with the largest gaps, top 2" not in headings
