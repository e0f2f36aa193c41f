"""The exceptions of lakesql, all of them:

    LakeError                 anything lakesql refuses or cannot do; catch this one
    |-- FormatError           bytes on storage are not what the Hudi format prescribes
    |-- Unsupported           a feature we know of and do not do; raised before the first byte is written
    |-- TableError            the table, its schema, its data or the rows given do not fit the request
    |   `-- FileGone          a file went while it was about to be read, as a clean beside does; run it again
    |-- SQLError              a statement is malformed or refers to something unknown
    |-- CommitConflict        surely not committed; nothing was changed, a retry is safe
    |   `-- IngestConflict    another run of the same ingestion moved its offsets first
    |-- OverBudget            a statement wanted more requests than its budget; nothing was committed
    |-- CommitUnknown         the outcome of the commit is not known; look at the timeline, delete nothing
    `-- IngestError           an ingestion cannot go on: brokers, registry, offsets
        `-- LastingError      to try again does not help: records that do not fit, a full disk, a refusal
            |-- JobError          a job file or its settings are wrong
            |-- IngestionRunning  another run of the same ingestion holds its lock
            `-- TooManyBadRecords more records than allowed cannot be decoded

and one warning, StaleReadWarning.

Every text says what happened, where (table, instant, file, offset or line and column) and what to do.
"""


class LakeError(Exception):
    """Base of every error that lakesql raises on purpose."""


class FormatError(LakeError):
    """Bytes on storage are not what the Hudi table format prescribes."""


class Unsupported(LakeError):
    """A known feature that lakesql does not do; raised before anything is written."""


class TableError(LakeError):
    """The table, its schema, its data or the rows given do not fit the request."""


class FileGone(TableError):
    """A file that was there went before it was read: cleaned, archived or rolled back meanwhile. A retry is safe."""


class SQLError(LakeError):
    """A statement is malformed or refers to something unknown."""


class CommitConflict(LakeError):
    """Another writer came first. Nothing was committed; a retry is safe."""


class OverBudget(LakeError):
    """A statement wanted to make more requests to object stores than it may. Nothing was committed."""


class CommitUnknown(LakeError):
    """The outcome of a commit is not known. Look at the timeline; delete nothing."""


class IngestConflict(CommitConflict):
    """Another run of the same ingestion moved its offsets first. Nothing was committed."""


class IngestError(LakeError):
    """An ingestion cannot go on: brokers, registry, offsets. Stored offsets have not moved past what is stored."""


class LastingError(IngestError):
    """An ingestion cannot go on, and to try again does not help: records that do not fit, a full disk, a refusal."""


class JobError(LastingError):
    """A job file or a setting of an ingestion is wrong. Nothing was committed."""


class IngestionRunning(LastingError):
    """Another run of the same ingestion holds its lock."""


class TooManyBadRecords(LastingError):
    """More records of a partition than allowed cannot be decoded. Nothing of it was committed."""


class StaleReadWarning(UserWarning):
    """A read-optimized read was staler than asked for, and `lakesql.read_optimized.on_stale` is warn."""
