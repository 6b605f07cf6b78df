"""Reports in a real browser: from a file, with the network off; what a reader does with a page."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import HOSTILE, TYPES

pd = pytest.importorskip("pandas")
pytest.importorskip("jinja2")
playwright = pytest.importorskip("playwright.sync_api", reason="drives the browser: install the extra `test`")

BROWSERS = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge"
QUIET = "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"
LARGEST, SLOWEST = 8e6, 3.0  # bytes of a page, and seconds until it can be used


@pytest.fixture(scope="module")
def browser():
    """A browser that is installed; tests are skipped where there is none."""
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip("needs a browser: install Debian's package chromium, or Chrome")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu", *QUIET])
        yield started
        started.close()


class Reader:
    """A page that was opened from a file, offline, and what its console said."""

    def __init__(self, browser, file: Path, width: int = 1280, **asked) -> None:
        height = 900 if width > 700 else 844
        asked |= {"viewport": {"width": width, "height": height}, "offline": True, "reduced_motion": "reduce"}
        self.context = browser.new_context(**asked)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.said.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        begun = time.perf_counter()
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-ready]")
        self.seconds = time.perf_counter() - begun

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def rows(self, root: str = "#genes") -> list[str]:
        """What stands in the first column of a table."""
        return self.page.locator(f"{root} tbody th").all_inner_texts()

    def column(self, name: str, root: str = "#genes") -> list[str]:
        heads = [text.replace("\n", " ") for text in self.page.locator(f"{root} thead th").all_inner_texts()]
        place = [head.strip(" ▼▲±") for head in heads].index(name)
        return self.page.locator(f"{root} tbody tr > :nth-child({place + 1})").all_inner_texts()

    def area(self, selector: str) -> dict[str, float]:
        """Where a chart is, once it is in sight."""
        chart = self.page.locator(selector)
        chart.scroll_into_view_if_needed()
        return chart.bounding_box()

    def settle(self, before: str, selector: str = "#said") -> None:
        """Until the sentence has changed, and charts have followed."""
        self.page.wait_for_function("([s, t]) => document.querySelector(s).innerText !== t", arg=[selector, before])
        self.page.wait_for_timeout(400)


@pytest.fixture
def read(browser):
    """Opens pages, and at the end sees that none complained or asked for anything but itself."""
    opened: list[Reader] = []

    def open_(file: Path, **asked) -> Reader:
        opened.append(Reader(browser, file, **asked))
        return opened[-1]

    yield open_
    for reader in opened:
        reader.context.close()
        assert reader.said == []
        assert [url for url in reader.asked if not url.startswith(("file:", "blob:", "data:"))] == []


@pytest.fixture
def fitted(saved_runs) -> Path:
    return saved_runs["fit"] / "report.html"


@pytest.mark.parametrize("kind", ["fit", "auto", "path", "evaluation"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_opens_from_a_file_without_a_network(read, saved_runs, kind, scheme, width):
    reader = read(saved_runs[kind] / "report.html", width=width, color_scheme=scheme)
    charts = reader.page.locator(".chart:not([hidden]) canvas")
    assert charts.count() == {"fit": 3, "auto": 4, "path": 4, "evaluation": 1}[kind]
    for chart in charts.all():
        box = chart.bounding_box()
        assert box["width"] > 200
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
    assert not reader.page.locator("#failed").is_visible()


def test_the_search_box_filters_and_says_how_many_rows_are_left(read, fitted):
    reader = read(fitted)
    table = pd.read_csv(fitted.parent / "genes.csv", keep_default_na=False)
    assert reader.rows() == table["gene"].head(25).tolist()
    reader.page.fill("#genes input[type=search]", "SCRIPT")
    wanted = table["gene"][table["gene"].str.contains("script")].tolist()
    assert len(wanted) == 2
    assert reader.rows() == wanted
    assert reader.text("#genes .told") == "2 of 2 rows"
    reader.page.fill("#genes input[type=search]", "no such gene")
    assert reader.rows() == []
    reader.page.fill("#genes input[type=search]", "")
    reader.page.click("#genes button.more")
    assert len(reader.rows()) == 125


def test_heads_sort_by_mouse_and_by_keyboard(read, fitted):
    reader = read(fitted)
    table = pd.read_csv(fitted.parent / "genes.csv", keep_default_na=False)
    reader.page.get_by_role("button", name="observed").click()
    order = table["observed"].astype("float32").sort_values(ascending=False, kind="stable").index
    assert reader.rows() == table["gene"][order].head(25).tolist()
    head = reader.page.locator("#genes thead th", has_text="observed")
    assert head.get_attribute("aria-sort") == "descending"
    reader.page.keyboard.press("Enter")  # the head has kept the focus
    assert head.get_attribute("aria-sort") == "ascending"
    assert reader.rows()[0] == table["gene"][table["observed"].idxmin()]  # those that fall
    reader.page.get_by_role("button", name="gene", exact=True).click()
    first = reader.rows()
    head = reader.page.locator("#genes thead th").first
    assert head.get_attribute("aria-sort") == "ascending"  # from A on
    reader.page.keyboard.press("Enter")
    reader.page.locator("#genes button.more").click()
    reader.page.locator("#genes button.more").click()
    assert reader.rows()[: -len(first) - 1 : -1] == first


def chosen(fitted: Path, cells: list[int]) -> pd.DataFrame:
    """Share and mean of each gene in some control cells, from the map itself."""
    import occamap as oc

    model = oc.load(fitted.parent / "map.occamap")
    moves = model.displacement(model._source.csr()[cells]).toarray()
    names = [str(name) for name in model.feature_names_in_]
    return pd.DataFrame({"share": (moves != 0).mean(axis=0), "mean": moves.mean(axis=0)}, index=names)


def test_choosing_a_cell_changes_the_list_of_genes(read, fitted):
    reader = read(fitted)
    before, said = reader.rows(), reader.text("#said")
    cells = pd.read_csv(fitted.parent / "cells.csv", keep_default_na=False)["cell"].tolist()
    reader.page.fill("#cell", cells[7])
    reader.settle(said)
    expected = chosen(fitted, [7])
    assert reader.rows() != before
    first = reader.rows()[0]
    assert abs(expected.loc[first, "mean"]) >= 0.98 * expected["mean"].abs().max()
    group = pd.read_csv(fitted.parent / "cells.csv", keep_default_na=False)["group"][7]
    assert reader.text("#said") == f"{cells[7]} ({group}): {int((expected['share'] > 0).sum())} genes move in it."
    assert set(reader.column("chosen: moves in")[:5]) == {"100 %"}
    said = reader.text("#said")
    reader.page.click("#clear")
    reader.settle(said)
    assert reader.rows() == before
    assert reader.page.input_value("#cell") == ""


def test_dragging_over_cells_chooses_those_inside(read, fitted):
    reader = read(fitted)
    said = reader.text("#said")
    box = reader.area("#cells canvas")
    mouse = reader.page.mouse
    mouse.move(box["x"] + 60, box["y"] + 40)
    mouse.down()
    mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.5, steps=6)
    mouse.up()
    reader.settle(said)
    assert re.match(r"\d+ cells \(in the frame\): \d+ genes move in at least half of them\.", reader.text("#said"))
    assert "chosen: mean" in reader.text("#genes thead").replace("\n", " ")
    assert "chosen control cells" in reader.text("#heatmap-told")


def test_clicking_a_cell_in_the_chart_chooses_it(read, fitted):
    reader = read(fitted)
    said = reader.text("#said")
    box = reader.area("#cells canvas")
    for x in range(60, int(box["width"]) - 20, 14):  # somewhere there is a cell
        for y in range(50, int(box["height"]) - 120, 30):
            reader.page.mouse.click(box["x"] + x, box["y"] + y)
            if reader.text("#said") != said:
                assert "genes move in it." in reader.text("#said")
                return
    raise AssertionError("no cell could be clicked")


def test_a_tap_chooses_a_cell(browser, fitted):
    reader = Reader(browser, fitted, width=390, has_touch=True)
    said, box = reader.text("#said"), reader.area("#cells canvas")
    for x in range(60, int(box["width"]) - 20, 10):
        for y in range(50, int(box["height"]) - 140, 24):
            reader.page.touchscreen.tap(box["x"] + x, box["y"] + y)
            if reader.text("#said") != said:
                assert "genes move in it." in reader.text("#said")
                reader.context.close()
                return
    raise AssertionError("no cell could be tapped")


def test_escape_clears_the_choice(read, fitted):
    reader = read(fitted)
    said = reader.text("#said")
    reader.page.select_option("#group", label=TYPES[0])
    reader.settle(said)
    now = reader.text("#said")
    reader.page.keyboard.press("Escape")
    reader.settle(now)
    assert reader.text("#said") == said


def test_choosing_a_group_shows_its_genes(read, fitted):
    reader = read(fitted)
    said = reader.text("#said")
    cells = pd.read_csv(fitted.parent / "cells.csv", keep_default_na=False)
    reader.page.select_option("#group", label=TYPES[0])
    reader.settle(said)
    rows = np.flatnonzero(cells["group"] == TYPES[0])
    expected = chosen(fitted, rows.tolist())
    half = int((expected["share"] >= 0.5).sum())
    name = json.loads((fitted.parent / "run.json").read_text(encoding="utf-8"))["files"]["genes_by"]
    table = pd.read_csv(fitted.parent / name, index_col=[0, 1], keep_default_na=False, na_values="")
    tested = table.loc[TYPES[0]]
    told = f"{rows.size} cells ({TYPES[0]}): {half} genes move in at least half of them."
    assert reader.text("#said") == f"{told} {(tested['q'] <= 0.1).sum()} genes respond there (q ≤ 0.1)."
    shown = zip(reader.rows()[:5], reader.column("chosen: difference"), reader.column("chosen: q"), strict=False)
    for name, difference, q in shown:
        assert float(difference.replace("−", "-")) == pytest.approx(tested.loc[name, "difference"], abs=0.006)
        assert float(q.replace("−", "-")) == pytest.approx(tested.loc[name, "q"], rel=0.5)
    for name, mean in zip(reader.rows()[:5], reader.column("chosen: mean")[:5], strict=True):
        assert float(mean.replace("−", "-")) == pytest.approx(expected.loc[name, "mean"], abs=0.03)


def test_choosing_a_gene_shows_its_cells(read, fitted):
    reader = read(fitted)
    table = pd.read_csv(fitted.parent / "genes.csv", keep_default_na=False).set_index("gene")
    said, name = reader.text("#said"), table.index[1]
    before = reader.page.locator("#cells canvas").screenshot()
    reader.page.locator("#genes tbody button").nth(1).click()
    reader.settle(said)
    assert reader.text("#said").startswith(f"{name} moves in {100 * table['share'][name]:.0f} % of all control cells")
    assert reader.page.input_value("#gene") == name
    assert reader.page.input_value("#colour") == "gene"
    assert reader.page.locator("#groups canvas").is_visible()
    assert reader.page.locator("#cells canvas").screenshot() != before
    pressed = reader.page.locator("#genes tbody button[aria-pressed=true]")
    assert pressed.all_inner_texts() == [name]
    said = reader.text("#said")
    reader.page.fill("#gene", table.index[3])
    reader.settle(said)
    assert reader.text("#said").startswith(table.index[3])


def test_a_gene_that_is_not_there_is_said_to_be_none(read, fitted):
    reader = read(fitted)
    reader.page.fill("#gene", "nobody")
    reader.page.press("#gene", "Tab")
    assert reader.page.evaluate("document.getElementById('gene').validationMessage") == "There is no such name."


def test_the_table_is_saved_as_csv(read, fitted, tmp_path):
    reader = read(fitted)
    with reader.page.expect_download() as waiting:
        reader.page.click("#genes button.save")
    assert waiting.value.suggested_filename == "genes.csv"
    waiting.value.save_as(tmp_path / "genes.csv")
    found = pd.read_csv(tmp_path / "genes.csv", keep_default_na=False)
    table = pd.read_csv(fitted.parent / "genes.csv", keep_default_na=False)
    assert found["gene"].tolist() == table["gene"].tolist()
    for name in ("share", "mean", "observed", "difference_low", "difference_high", "frequency", "q"):
        numbers = (pd.to_numeric(one[name].replace({"NaN": ""})) for one in (found, table))
        np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-7)


def test_hostile_names_stay_text(read, fitted):
    reader = read(fitted)
    reader.page.click("#genes button.more")
    listed = reader.rows()
    assert set(HOSTILE) <= set(listed)
    said = reader.text("#said")
    for name in HOSTILE[:3]:
        reader.page.fill("#gene", name)
        reader.settle(said)
        said = reader.text("#said")
        assert said.startswith(name)
    for kind in TYPES:
        reader.page.select_option("#group", label=kind)
        reader.settle(said)
        said = reader.text("#said")
        assert f"({kind})" in said
    box = reader.area("#cells canvas")
    reader.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # whatever tooltip there is
    found = reader.page.evaluate("document.querySelectorAll('img, b, i, script:not([type])').length")
    assert found == 2  # the page's own scripts


def test_everything_can_be_reached_by_keyboard(read, fitted):
    reader = read(fitted)
    reached = set()
    for _ in range(60):
        reader.page.keyboard.press("Tab")
        reached.add(reader.page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"colour", "gene", "group", "cell", "axes", "save"} <= reached
    controls = "[...document.querySelectorAll('input, select, button')]"
    nameless = f"{controls}.filter((e) => !e.labels?.length && !e.textContent.trim()).length"
    assert reader.page.evaluate(nameless) == 0


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(read, fitted, scheme):
    reader = read(fitted, color_scheme=scheme)
    pairs = reader.page.evaluate(
        """() => [...document.querySelectorAll("p, h1, h2, h3, a, li, strong, span, th, td, button, label, pre")]
        .filter((e) => e.offsetParent && e.innerText.trim() && !e.disabled && !e.closest(".vega-embed"))
        .map((e) => {
          let at = e;
          while (at && /rgba\\(0, 0, 0, 0\\)/.test(getComputedStyle(at).backgroundColor)) at = at.parentElement;
          const paper = getComputedStyle(at ?? document.body).backgroundColor;
          return [getComputedStyle(e).color, paper, e.innerText.slice(0, 30)];
        })"""
    )
    assert len(pairs) > 50
    for ink, paper, text in pairs:
        light, dark = sorted((luminance(ink), luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper, text)


def test_a_page_prints(read, fitted, tmp_path):
    reader = read(fitted, color_scheme="dark")
    reader.page.emulate_media(media="print", color_scheme="dark")
    assert reader.page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"  # ink on paper
    assert not reader.page.locator("nav").is_visible()
    assert not reader.page.locator("#gene").is_visible()
    reader.page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_the_scores_of_an_evaluation_follow_the_condition(read, saved_runs):
    folder = saved_runs["evaluation"]
    reader = read(folder / "report.html")
    table = pd.read_csv(folder / "evaluation.csv")
    before = reader.column("divergence", "#methods-table")
    reader.page.select_option("#condition", index=1)
    reader.page.wait_for_timeout(300)
    after = reader.column("divergence", "#methods-table")
    assert after != before
    within = reader.page.locator("#condition option").nth(1).inner_text().rpartition(": ")[0]
    mine = table[(table["within"] == within) & (table["method"] == "identity")]["divergence"].mean()
    place = reader.rows("#methods-table").index("nothing moves")
    assert float(after[place]) == pytest.approx(mine, rel=1e-3)
    reader.page.select_option("#metric", label="RBO")
    reader.page.wait_for_timeout(300)
    with reader.page.expect_download() as waiting:
        reader.page.click("#methods-table button.save")
    assert waiting.value.suggested_filename == "scores.csv"


def test_without_javascript_the_words_are_there(browser, fitted):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(fitted.as_uri())
    assert "genes respond (10 % false-discovery rate, cells treated as independent)" in page.inner_text("#headline")
    assert "need JavaScript" in page.inner_text("main")
    assert page.locator(".trust li").count() >= 5
    context.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """The page of 5,000 control cells × 34,636 genes, in which more entries move than a page holds."""
    from occamap._validate import check_samples
    from occamap.reports import Run, page
    from occamap.reports.view import ENTRIES
    from occamap.run_record import DataFile, RunRecord

    n, d, rng = 5_000, 34_636, np.random.default_rng(0)
    names = np.array([f"ENSG{k:011d}" for k in range(d)], dtype=object)
    control, target = (sp.random_array((n, d), density=0.01, format="csr", dtype=np.float32, rng=rng) for _ in range(2))
    moves = sp.random_array((n, d), density=0.02, format="csr", dtype=np.float32, rng=rng, data_sampler=rng.normal)
    assert moves.nnz > ENTRIES
    groups = [f"cell type {code}" for code in rng.integers(0, 12, n)]
    tables = {
        "cells": pd.DataFrame({"cell": [f"CELL-{k:06d}-1" for k in range(n)], "group": groups}),
        "targets": pd.DataFrame({"cell": [f"TARGET-{k:06d}-1" for k in range(n)], "group": groups}),
    }
    asked = {"groupby": "g", "control": "a", "target": "b", "layer": None, "counts": "keep", "cost": "l1", "by": "type"}
    result = {
        "status": "converged", "message": "Converged.", "epsilon": 1.0, "epsilon_rule": "absolute", "gamma": 1.0,
        "effective_targets": 9.0, "density": 0.02, "n_cells": n, "n_targets": n, "n_genes": d,
    }  # fmt: skip
    data = DataFile("cells.h5ad", "0" * 64, (2 * n, d))
    record = RunRecord("fit", data, asked, result, (), {"occamap": "0"}, 0, 1.0, "2026-01-01", {})
    sides = {"_source": check_samples(control, "X"), "_target": check_samples(target, "Y")}
    even = {"weights": lambda cells, within: np.full((cells.shape[0], n), 1 / n)}
    model = SimpleNamespace(within=None, **sides, **even, feature_names_in_=names)
    file = tmp_path_factory.mktemp("large") / "page.html"
    file.write_bytes(page(Run(record, tables, model, sp.csr_array(moves))))
    return file


def test_a_large_page_is_small_and_soon_there(read, large):
    assert large.stat().st_size < LARGEST
    for _ in range(5):  # others may share the machine: one opening that is fast shows that it can be
        reader = read(large)
        if reader.seconds < SLOWEST:
            break
    assert reader.seconds < SLOWEST
    said = reader.text("#said")
    reader.page.select_option("#group", index=3)
    reader.settle(said)
    assert "genes move in at least half of them" in reader.text("#said")
