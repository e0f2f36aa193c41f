"""What goes wrong with a request, in words for people: errors of the client become TableError.

The client's own errors tell whole addresses, which may be signed, and notes for its makers; neither comes out.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions

from lakesql.errors import TableError


class BehindTheEndError(Exception):
    """A range was asked for that begins where the object has ended."""


def is_refusal(error: Exception) -> bool:
    """Whether a conditional request was answered: the condition does not hold."""
    return isinstance(error, exceptions.PreconditionError | exceptions.AlreadyExistsError)


_DOING = {"get": "read", "head": "read", "list": "listed", "delete": "removed"}


@contextmanager
def told(where: str, kind: str) -> Iterator[None]:
    """Within, errors of the client become TableError, but for those that are answers."""
    doing = _DOING.get(kind, "written")
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f'Cannot open file "{where}": No such file') from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
        raise TableError(
            f"{where}: cannot be {doing}: the store refuses it. Check the credentials and what they may do, then try "
            "again."
        ) from None
    except exceptions.BaseError as error:
        text = first_line(error)
        if kind == "get" and ("416" in text or "Wanted range starting at" in text):
            raise BehindTheEndError from None
        # The client's own error tells whole addresses, which may be signed.
        raise TableError(f"{where}: cannot be {doing}: {text}") from None


_ADVICE = {
    "NoSuchBucket": "There is no such bucket. Correct the address, or create the bucket.",
    "InvalidAccessKeyId": "The store does not know the access key. Correct the credentials.",
    "SignatureDoesNotMatch": "The secret key does not fit the access key. Correct the credentials.",
    "ExpiredToken": "The credentials have expired. Renew them.",
    "AuthorizationHeaderMalformed": "The bucket is in another region. Set lakesql.store.region or AWS_REGION.",
    "PermanentRedirect": "The bucket is in another region. Set lakesql.store.region or AWS_REGION.",
}
"""What the codes of S3 mean to a person."""


def first_line(error: Exception) -> str:
    """What a client says, without the notes for its makers and without the query of an address, which may be signed."""
    told, _, _ = str(error).partition("\n\nDebug source:")
    code = re.search(r"<Code>(\w+)</Code>", told)
    if code is not None and code[1] in _ADVICE:
        return _ADVICE[code[1]]
    line = told.split("\n", 1)[0] + (f" {code[1]}" if code is not None else "")
    return " ".join(word.partition("?")[0] if "://" in word else word for word in line.split(" "))
