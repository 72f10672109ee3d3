"""The report as one HTML page that needs nothing else: pictures inside, no script, no network."""

from __future__ import annotations

import math

from theory_checks.pictures import formula_picture, picture
from theory_checks.report import Report, Side, plain


def render_html(report: Report, *, title: str = "optikit theory checks", preface: str = "") -> str:
    """The page of a report.

    Parameters
    ----------
    report : Report
    title : str
    preface : str or markupsafe.Markup, optional
        Shown above the claims. Every text is escaped by the template engine, this one too unless it is
        `Markup`: a section of a page that was itself made by a template.

    Returns
    -------
    str
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("theory_checks"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = format_number
    environment.filters["plain"] = plain
    environment.globals["row_table"] = row_table
    cards = [
        {
            "claim": claim,
            "anchor": f"claim-{number}",
            "picture": picture(claim),
            "formula": formula_picture(claim.formula),
        }
        for number, claim in enumerate(report.claims)
    ]
    template = environment.get_template("report.html")
    return template.render(report=report, cards=cards, title=title, preface=preface)


def format_number(number: float) -> str:
    """A number for a reader: six digits, infinities and NaN as signs."""
    if math.isnan(number):
        return "–"
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    return f"{number:.6g}"


def row_table(side: Side, most: int = 60) -> list[dict[str, object]]:
    """The first `most` rows of a side, as dictionaries."""
    columns = side.rows
    count = min(len(columns["value"]), most)
    return [{name: column[row] for name, column in columns.items()} for row in range(count)]
