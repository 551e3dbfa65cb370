"""The reports of an analysis, opened in a real browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from analyzed_models import CONFIG, SLEEP, SMALL
from running_server import write_model
from system_packages import BROWSERS, WHOLE_BROWSERS, program

BROWSER = program(*BROWSERS)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here")
needs_whole_browser = pytest.mark.skipif(program(*WHOLE_BROWSERS) is None, reason="no whole Chromium is installed here")
PLOTS = ("throughput_v_latency", "latency_breakdown", "batch_sizes", "memory", "utilisation")
MEASURE = """
<script>
window.addEventListener("load", () => {
  const found = {};
  for (const figure of document.querySelectorAll("figure")) {
    const marks = [...figure.querySelectorAll(".mark")].map(mark => mark.getBoundingClientRect());
    found[figure.id] = marks.filter(box => box.width > 0 && box.height > 0).length;
  }
  found.requests = performance.getEntriesByType("resource").length;
  document.title = JSON.stringify(found);
});
</script></body>"""


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results of one analysis."""
    folder = tmp_path_factory.mktemp("report")
    write_model(folder, "sleeper", SLEEP, CONFIG)
    command = [sys.executable, "-m", "trireme", "analyze", "sleeper", "-m", "model_repository", *SMALL]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def browse(folder: Path, *words: str) -> str:
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return done.stdout


class _Names(HTMLParser):
    """Everything in the page that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]


def test_the_page_needs_nothing_but_itself(analyzed: Path) -> None:
    text = (analyzed / "reports/summaries/sleeper/result_summary.html").read_text()
    names = _Names()
    names.feed(text)
    assert names.addresses == []
    assert re.findall(r"https?:|url\(|@import|<script", text) == []


@needs_browser
def test_a_browser_draws_marks_in_every_plot(analyzed: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = (analyzed / "reports/summaries/sleeper/result_summary.html").read_text()
    page.write_text(text.replace("</body>", MEASURE))
    shown = browse(tmp_path, "--virtual-time-budget=5000", "--dump-dom", page.as_uri())
    title = re.search(r"<title>(\{.*?\})</title>", shown)
    assert title is not None, shown[:500]
    found = dict(re.findall(r'"(\w+)":(\d+)', title[1].replace("&quot;", '"')))
    assert {name: int(found[name]) > 0 for name in PLOTS} == dict.fromkeys(PLOTS, True)
    assert int(found["throughput_v_latency"]) >= 4
    assert found["requests"] == "0"


FRAME = """<body><iframe src="page.html" style="width:%dpx;height:900px;border:0"></iframe><script>
window.addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument;
  const wide = [...page.querySelectorAll("figure, svg, .table")].filter(one => one.scrollWidth > one.clientWidth + 1
    || one.getBoundingClientRect().right > page.documentElement.clientWidth + 1);
  document.title = "outside:" + wide.map(one => one.className.baseVal || one.id || one.className || one.tagName).join();
});
</script></body>"""


@needs_browser
@pytest.mark.parametrize(("width", "outside"), [(1100, ""), (420, "table")])
def test_nothing_is_outside_of_the_window_but_a_table_that_scrolls(
    analyzed: Path, tmp_path: Path, width: int, outside: str
) -> None:
    page = (analyzed / "reports/summaries/sleeper/result_summary.html").read_text()
    (tmp_path / "page.html").write_text(page)
    (tmp_path / "frame.html").write_text(FRAME % width)
    words = ["--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom"]
    shown = browse(tmp_path, *words, (tmp_path / "frame.html").as_uri())
    title = re.search(r"<title>outside:(.*?)</title>", shown)
    assert title is not None, shown[:500]
    assert set(filter(None, title[1].split(","))) == set(filter(None, [outside]))


@needs_browser
def test_a_screenshot_shows_more_than_a_white_page(analyzed: Path, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    page = analyzed / "reports/summaries/sleeper/result_summary.html"
    browse(tmp_path, "--window-size=1200,1600", f"--screenshot={tmp_path / 'shot.png'}", page.as_uri())
    with pillow.open(tmp_path / "shot.png") as picture:
        colours = {colour for count, colour in picture.convert("RGB").getcolors(1 << 24) if count > 200}
    assert (0, 114, 178) in colours, "no mark has the first colour of the plots"


@needs_whole_browser
def test_reports_are_printed_as_pdf_on_request(analyzed: Path) -> None:
    command = [sys.executable, "-m", "trireme", "analyze", "report"]
    words = ["--report-model-configs", "sleeper_config_default", "-o", "pdf", "-e", "again"]
    done = subprocess.run([*command, *words], cwd=analyzed, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    pdf = analyzed / "again/reports/detailed/sleeper_config_default/detailed_report.pdf"
    assert pdf.read_bytes().startswith(b"%PDF-")


def test_a_pdf_without_a_browser_is_refused_before_anything_is_measured(analyzed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trireme", "analyze", "sleeper", "-m", str(analyzed / "model_repository")]
    done = subprocess.run(
        [*command, "-o", "pdf"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": ""},
    )
    assert done.returncode == 2
    assert "printed by Chromium or Chrome" in done.stderr


def test_results_are_shown_again_with_other_goals(analyzed: Path) -> None:
    command = [sys.executable, "-m", "trireme", "analyze", "analyze", "--slo", "throughput>1000000", "-e", "again"]
    done = subprocess.run(command, cwd=analyzed, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5, done.stderr
    assert "Models (Inference):" in done.stdout
    assert "No configuration meets the constraints" in done.stdout


def test_a_report_of_a_configuration_that_is_not_there_names_those_that_are(analyzed: Path) -> None:
    command = [sys.executable, "-m", "trireme", "analyze", "report", "--report-model-configs", "sleeper_config_99"]
    done = subprocess.run(command, cwd=analyzed, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "sleeper_config_default" in done.stderr
