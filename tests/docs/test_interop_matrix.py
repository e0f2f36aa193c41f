"""`docs/interop.md` has the interop tests as they are; `make regold` writes its tables anew."""

import subprocess
import sys

from tests.docs.blocks import DOCS
from tests.docs.generated import check


def test_the_page_lists_every_interop_test(regold: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.interop_matrix"],
        cwd=DOCS.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    check(DOCS / "interop.md", "matrix", done.stdout, regold)
