"""What Tab offers in cells of the magics."""

import warnings

import pytest
from IPython.core.completer import provisionalcompleter

from tests.unit.notebook.test_magic import TRIPS


@pytest.fixture
def offered(shell):
    shell.run_cell(TRIPS).raise_error()

    def ask(text, at=None):
        with warnings.catch_warnings(), provisionalcompleter():
            warnings.simplefilter("ignore")
            return [c.text for c in shell.Completer.completions(text, len(text) if at is None else at)]

    return ask


def test_names_of_tables_columns_functions_and_keywords_are_offered(offered):
    assert "trips" in offered("%%lakesql\nSELECT *\nFROM tri")
    assert "trips_ro" in offered("%lakesql SELECT * FROM trips_")
    assert "hudi_timeline" in offered("x = %lakesql FROM hudi_ti")
    assert "MERGE" in offered("%%lakesql\nMER")
    assert "fare" in offered("%%lakesql\nSELECT fa\nFROM trips", at=len("%%lakesql\nSELECT fa"))


def test_options_are_offered_before_the_statement(offered):
    assert offered("%lakesql --wa") == ["--warehouse"]
    assert set(offered("%%lakesql --df x --p")) == {"--pl", "--plot"}


def test_other_cells_are_completed_as_ever(offered):
    assert "trips" not in offered("tri")
    assert "print" in offered("prin")
