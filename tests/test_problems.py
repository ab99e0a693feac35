"""Everything that is wrong is said at once, in the order in which a reader meets it."""

import pytest

from roundtrip._problems import ManyProblems, Problems


def test_what_is_wrong_with_a_file_comes_by_its_lines():
    problems = Problems()
    for line in (10, 2, 9):
        problems.add(f"a.csv:{line}", "is wrong.")
    problems.add("split", "is wrong.")
    problems.add("a.csv:1", "is wrong.")
    with pytest.raises(ManyProblems) as caught:
        problems.raise_any("the data")
    said = [line.strip().split(": ")[0] for line in str(caught.value).splitlines()[1:]]
    assert said == ["a.csv:1", "a.csv:2", "a.csv:9", "a.csv:10", "split"]
