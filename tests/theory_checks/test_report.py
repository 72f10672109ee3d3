"""Reports: JSON that survives the round trip, and a page that needs no network and executes nothing."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import toy_claims
from markupsafe import Markup

from theory_checks import PowerLaw
from theory_checks.html import format_number, render_html
from theory_checks.pictures import formula_picture, picture
from theory_checks.registry import Registry, discover
from theory_checks.report import MOST_ROWS, Report, plain, write_text
from theory_checks.run import run_claims


@pytest.fixture(scope="module")
def report():
    return run_claims(discover(["toy_claims"]))


@pytest.fixture(scope="module")
def page(report):
    return render_html(report)


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def test_json_survives_the_round_trip(report):
    text = report.to_json()
    again = Report.from_json(text)
    assert again.to_json() == text
    assert again.counts() == report.counts()
    assert again.claims[0].measured.rows == report.claims[0].measured.rows | {
        "reference": pytest.approx(report.claims[0].measured.rows["reference"], nan_ok=True)
    }


def test_json_is_strict_although_measurements_are_not_finite():
    claim = toy_claims.make("a.b", PowerLaw(-1, 0.1), lambda p, s: np.inf, lambda p, s: np.nan)
    text = run_claims(Registry((), {"a.b": claim})).to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = Report.from_json(text).claims[0]
    assert back.measured.rows["value"] == [np.inf] * 5
    assert np.isnan(back.control.rows["value"]).all()


@pytest.mark.parametrize("text", ["{}", "[]", '{"optikit_check": 99}'])
def test_a_text_that_is_no_report_is_refused(text):
    with pytest.raises(ValueError, match="report of format 1"):
        Report.from_json(text)


def test_the_page_is_the_same_from_the_json_alone(report, page):
    assert render_html(Report.from_json(report.to_json())) == page


def test_hostile_text_stays_text(page):
    elements = Elements(page).tags
    names = {tag for tag, _ in elements}
    assert not names & {"script", "svg", "b", "i", "u", "iframe", "object", "link", "base", "form"}
    assert not any(name.startswith("on") for _, attributes in elements for name in attributes)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#34;quoted&#34; &#39;x&#39;" in page
    assert "no &lt;b&gt;luck&lt;/b&gt; at 1" in page
    assert "\x1b" not in page


def test_a_preface_is_escaped_unless_it_was_made_by_a_template(report):
    assert "<p>x &amp; y</p>" in render_html(report, preface=Markup("<p>x &amp; y</p>"), title="<a>")
    assert "&lt;p&gt;x &amp; y&lt;/p&gt;" in render_html(report, preface="<p>x & y</p>", title="<a>")
    assert "<title>&lt;a&gt;</title>" in render_html(report, title="<a>")


def test_the_page_loads_nothing(page):
    for tag, attributes in Elements(page).tags:
        for name in ("src", "href", "action", "data", "srcset", "background"):
            target = attributes.get(name)
            assert target is None or target.startswith(("data:image/svg+xml;base64,", "#")), (tag, target)
    style = re.search(r"<style>(.*?)</style>", page, re.S).group(1)
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in page


def test_the_pictures_load_nothing_either(page):
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(pictures) >= 8
    for encoded in pictures:
        svg = base64.b64decode(encoded).decode()
        assert "<script" not in svg
        assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', svg))


def test_each_claim_shows_its_verdict_law_and_control(report, page):
    for claim in report.claims:
        assert f'<span class="verdict {claim.verdict}">{claim.verdict}</span>' in page
    assert "the exponent is another" in page
    assert "Traceback (most recent call last)" in page


def test_links_lead_to_the_cards(page):
    elements = Elements(page).tags
    ids = {attributes["id"] for _, attributes in elements if "id" in attributes}
    links = [attributes["href"][1:] for tag, attributes in elements if tag == "a"]
    assert len(links) == len(toy_claims.CLAIMS)
    assert set(links) <= ids


def test_a_formula_that_matplotlib_cannot_read_is_shown_as_text(page):
    assert formula_picture(r"F \leq \frac{1}{r}").startswith("data:image/svg+xml;base64,")
    assert formula_picture(r"\frac{1}{") is None
    assert formula_picture("") is None
    assert r"\frac{1}{&lt;/pre&gt;&lt;script&gt;" in page


def test_a_picture_is_drawn_although_numbers_are_not_finite():
    claim = toy_claims.make(
        "a.b", PowerLaw(-1, 0.1), lambda p, s: np.nan if p == 4 else 1 / p, lambda p, s: -np.inf
    )
    found = run_claims(Registry((), {"a.b": claim})).claims[0]
    assert picture(found).startswith("data:")


def test_long_series_are_thinned_for_the_report_but_judged_whole():
    claim = toy_claims.make(
        "a.b",
        PowerLaw(-1, 0.1),
        lambda p, s: 1 / np.arange(1.0, 5001.0),
        lambda p, s: np.ones(10),
        sweep=toy_claims.Sweep.once(),
    )
    side = run_claims(Registry((), {"a.b": claim})).claims[0].measured
    assert side.measured == 5000
    assert len(side.rows["value"]) == MOST_ROWS
    assert "5000 points" in side.message


def test_control_characters_do_not_reach_a_terminal():
    assert plain("a\x1b[31mb\nc") == "a�[31mb\nc"


@pytest.mark.parametrize(
    ("number", "text"), [(np.nan, "–"), (np.inf, "∞"), (-np.inf, "−∞"), (1 / 3, "0.333333")]
)
def test_numbers_are_written_for_readers(number, text):
    assert format_number(number) == text


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "deep" / "report.html"
    write_text(target, "lone surrogate \udcff")
    assert target.read_bytes() == rb"lone surrogate \udcff"
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
