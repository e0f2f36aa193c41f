"""Where statements are other people's, as at a server, they name no code to run."""

import pytest

from lakesql.errors import JobError
from lakesql.ingest import decode_python


def test_decoders_are_not_imported_for_statements_of_others(monkeypatch):
    monkeypatch.setattr(decode_python, "_importing", True)
    assert decode_python.decoder_function("json:loads")
    decode_python.registered_only()
    with pytest.raises(JobError, match="no decoder of this name is registered"):
        decode_python.decoder_function("json:loads")
