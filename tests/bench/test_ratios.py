"""No ratio to a peer has doubled against the committed one."""

import json

import pytest

from benchmarks import guard


@pytest.mark.bench
def test_no_ratio_has_doubled(tmp_path):
    baseline = json.loads(guard.BASELINE.read_text())["ratios"]
    found, wrong = guard.checked(tmp_path, baseline)
    assert not wrong, "\n".join(wrong)
    assert set(found) == set(baseline)
