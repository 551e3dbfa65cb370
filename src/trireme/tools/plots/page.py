"""Reports as HTML pages that need nothing but themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#2b3440;margin:2rem auto;max-width:1120px;padding:0 1rem;background:#fff}
h1{font-size:1.5rem;margin-bottom:.25rem}h1,p{overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:0 0 .25rem}
table{border-collapse:collapse;width:100%;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.35rem .45rem;border-bottom:1px solid #e3e7ec}
th:first-child,td:first-child{text-align:left;min-width:min(12rem,40vw);overflow-wrap:anywhere}
tr.best td{background:#eaf4fb;font-weight:600}.table{overflow-x:auto}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:1.5rem}
figure{margin:0;break-inside:avoid}svg{width:100%;height:auto}figcaption,.note{color:#5c6770;font-size:.85rem}
.legend{margin:.25rem 0;font-size:.85rem}.legend span{display:inline-block;margin-right:1rem;overflow-wrap:anywhere}
.legend i{display:inline-block;width:.7rem;height:.7rem;border-radius:50%;margin-right:.35rem}
pre{background:#f4f6f8;padding:.75rem 1rem;overflow-x:auto;font-size:.85rem;border-radius:4px}
details{margin:.5rem 0}summary{cursor:pointer}
"""


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture, with the name of its file."""

    name: str
    title: str
    svg: str
    note: str = ""


def figure(plot: Plot) -> str:
    """A plot with its title and its note."""
    note = f"<figcaption>{escape(plot.note)}</figcaption>" if plot.note else ""
    return f'<figure id="{plot.name}"><h3>{escape(plot.title)}</h3>{plot.svg}{note}</figure>'


def html_page(title: str, parts: Sequence[str]) -> str:
    """With everything in it that it needs."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )
