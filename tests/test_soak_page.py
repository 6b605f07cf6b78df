"""docs/reliability.md has the counts of the run that is committed."""

from __future__ import annotations

import json

import pytest

from soak.__main__ import SECTIONS
from soak.page import PAGE, RESULTS, filled
from soak.tally import Tally

LEAST = {"problems": 100_000, "files": 10_000}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_ran_in_full_and_without_a_fault(section):
    record = json.loads((RESULTS / f"{section}.json").read_text())
    assert record["share"] == 1
    assert record["faults"] == 0
    assert record["tries"] >= LEAST.get(section, 1)
    assert f"<!-- counts: {section} -->" in PAGE.read_text()


def test_at_least_200_processes_were_killed():
    counts = json.loads((RESULTS / "crashes.json").read_text())["counts"]
    killed = [endings for what, endings in counts.items() if what.startswith("SIGKILL")]
    assert sum(sum(endings.values()) - endings.get("had ended before", 0) for endings in killed) >= 200


def test_the_page_has_the_counts():
    text = PAGE.read_text()
    assert filled(text) == text


def test_a_tally_counts_and_keeps_what_went_wrong(tmp_path):
    one, other = Tally("x", share=0.001), Tally("x")
    one.count("a", "right", 3)
    other.count("a", "right")
    other.fault("a", "seed 7")
    one.add(other)
    assert (one.total(), one.n_faults, one.faults, one.full(100_000), one.full(10)) == (5, 1, ["a: seed 7"], 100, 1)
    one.write(tmp_path / "x.json", {"CPU": "y"})
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["counts"] == {"a": {"fault": 1, "right": 4}}
    assert written["CPU"] == "y"
