"""docs/services/adaptive.md names every setting with its default, and the constants that the code has."""

import re
from pathlib import Path

from lakesql.services.adaptive import ALONG, WINDOW_S
from lakesql.services.adaptive_facts import MEMORY_S
from lakesql.services.adaptive_model import Costs
from lakesql.services.adaptive_reads import FLUSH_S, FOLDER
from lakesql.services.adaptive_settings import SETTINGS, parse_config

TEXT = (Path(__file__).parents[2] / "docs" / "services" / "adaptive.md").read_text()


def test_every_setting_is_in_the_table_and_no_other():
    rows = re.findall(r"^\| `(lakesql\.[a-z._]+)` \|", TEXT, re.M)
    assert sorted(rows) == sorted(SETTINGS)


def test_defaults_are_those_of_the_code():
    config = parse_config({})
    assert re.search(r"`lakesql.compaction.budget` \| 1 \|", TEXT)
    assert config.budget == 1.0
    assert re.search(r"`lakesql.compaction.log_read_cost` \| 1 \|", TEXT)
    assert config.log_read_cost == 1.0
    assert config.target.or_default(reads_known=False).read_amplification == 1.5
    assert (config.backpressure, config.observe_reads, config.period_s) == ("off", False, 0.0)


def test_constants_are_those_of_the_code():
    costs = Costs()
    assert (costs.group_s, costs.round_s) == (0.01, 0.1)
    assert (1 / costs.base_byte_s, 1 / costs.log_byte_s, 1 / costs.base_read_s) == (40e6, 15e6, 300e6)
    assert (MEMORY_S, WINDOW_S, ALONG) == (30 * 60, 10 * 60, 0.5)
    assert FOLDER in TEXT
    assert f"every {FLUSH_S:g} seconds" in TEXT
