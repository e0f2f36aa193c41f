"""The Avro schemas of everything a timeline file can hold, with the very text that Hudi writes.

`PLAN_SCHEMAS[name]` is a dict whose compact JSON equals, letter for letter, the schema in the files of Hudi 1.x
(hudi-format 2.7 and 2.8), including `avro.java.string`, the stray `default` beside some `items` and the order of keys;
the tests compare. Table version 6 gets the same ones: its readers resolve the two fields that 0.15 does not have.
Every call below builds a new dict and Hudi names a record in full only at its first use, so a record that occurs
twice is a plain name the second time.
"""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
_NAMESPACE = "org.apache.hudi.avro.model"
_NOTHING = object()

_STRING: Schema = {"type": "string", "avro.java.string": "String"}


def _array(items: object, **extra: object) -> Schema:
    return {"type": "array", "items": items, **extra}


def _map(values: object, **extra: object) -> Schema:
    return {"type": "map", "values": values, "avro.java.string": "String", **extra}


def _field(name: str, kind: object, default: object = _NOTHING, doc: str | None = None) -> Schema:
    found: Schema = {"name": name, "type": kind}
    if doc is not None:
        found["doc"] = doc
    if default is not _NOTHING:
        found["default"] = default
    return found


def _optional(name: str, kind: object, doc: str | None = None) -> Schema:
    return _field(name, ["null", kind], None, doc)


def _version(default: int = 1) -> Schema:
    return _field("version", ["int", "null"], default)


def _record(name: str, *fields: Schema) -> Schema:
    return {"type": "record", "name": name, "fields": list(fields)}


def _top(name: str, *fields: Schema) -> Schema:
    return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": list(fields)}


def _write_stat() -> Schema:
    longs = ("minEventTime", "maxEventTime")
    compacted = ("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted")
    return _record(
        "HoodieWriteStat",
        *(_optional(name, _STRING) for name in ("fileId", "path", "prevCommit")),
        *(_optional(name, "long") for name in ("numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes")),
        _optional("totalWriteErrors", "long"),
        _optional("partitionPath", _STRING),
        *(_optional(name, "long") for name in ("totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted")),
        *(_optional(name, "long") for name in ("numInserts", "totalLogBlocks", "totalCorruptLogBlock")),
        *(_optional(name, "long") for name in ("totalRollbackBlocks", "fileSizeInBytes")),
        _optional("logVersion", "int"),
        _optional("logOffset", "long"),
        _optional("baseFile", _STRING),
        _optional("logFiles", _array(_STRING, default=None)),
        _optional("cdcStats", _map("long", default=None)),
        _optional("prevBaseFile", _STRING),
        *(_optional(name, "long") for name in longs),
        _optional(
            "runtimeStats",
            _record(
                "HoodieRuntimeStats",
                *(_optional(name, "long") for name in ("totalScanTime", "totalCreateTime", "totalUpsertTime")),
            ),
        ),
        *(_optional(name, "long") for name in compacted),
        _optional("tempPath", _STRING),
        _optional("numUpdates", "long"),
    )


def _commit(name: str, *more: Schema, **extra: object) -> Schema:
    return _top(
        name,
        _optional("partitionToWriteStats", _map(_array(_write_stat()))),
        _optional("compacted", "boolean"),
        _optional("extraMetadata", _map(_STRING, **extra)),
        _version(),
        _optional("operationType", _STRING),
        *more,
    )


def _clustering_plan() -> Schema:
    piece = _record(
        "HoodieSliceInfo",
        _optional("dataFilePath", _STRING),
        _optional("deltaFilePaths", _array(_STRING)),
        _field("fileId", ["null", _STRING]),
        _optional("partitionPath", _STRING),
        _optional("bootstrapFilePath", _STRING),
        _version(),
    )
    group = _record(
        "HoodieClusteringGroup",
        _optional("slices", _array(piece)),
        _optional("metrics", _map("double")),
        _field("numOutputFileGroups", ["int", "null"], 1),
        _optional("extraMetadata", _map(_STRING)),
        _version(),
    )
    strategy = _record(
        "HoodieClusteringStrategy",
        _optional("strategyClassName", _STRING),
        _optional("strategyParams", _map(_STRING)),
        _version(),
    )
    return _record(
        "HoodieClusteringPlan",
        _optional("inputGroups", _array(group)),
        _optional("strategy", strategy),
        _optional("extraMetadata", _map(_STRING)),
        _version(),
        _optional("preserveHoodieMetadata", "boolean"),
        _optional("missingSchedulePartitions", _array(_STRING)),
    )


def _compaction_plan() -> Schema:
    operation = _record(
        "HoodieCompactionOperation",
        _field("baseInstantTime", ["null", _STRING]),
        _optional("deltaFilePaths", _array(_STRING)),
        _optional("dataFilePath", _STRING),
        _field("fileId", ["null", _STRING]),
        _optional("partitionPath", _STRING),
        _optional("metrics", _map("double")),
        _optional("bootstrapFilePath", _STRING),
    )
    strategy = _record(
        "HoodieCompactionStrategy",
        _optional(
            "compactorClassName",
            _STRING,
            "The class name that is provided here should extend CompactionExecutionStrategy abstract class, idea is "
            "that the plan generator will also provide the execution strategy to use.",
        ),
        _optional(
            "strategyParams",
            _map(_STRING),
            "These parameters play a key role in determining which action type it is i.e. compaction or logcompaction "
            "and it will also include configs that determine how compaction needs to be executed.",
        ),
        _version(),
    )
    return _top(
        "HoodieCompactionPlan",
        _optional("operations", _array(operation)),
        _optional("extraMetadata", _map(_STRING)),
        _version(),
        _optional("strategy", strategy),
        _field("preserveHoodieMetadata", ["boolean", "null"], False),
        _optional("missingSchedulePartitions", _array(_STRING)),
    )


def _cleaner_plan() -> Schema:
    retained = _record("HoodieActionInstant", *(_field(name, _STRING) for name in ("timestamp", "action", "state")))
    file = _record("HoodieCleanFileInfo", _optional("filePath", _STRING), _optional("isBootstrapBaseFile", "boolean"))
    return _top(
        "HoodieCleanerPlan",
        _optional("earliestInstantToRetain", retained),
        _field("lastCompletedCommitTimestamp", _STRING, ""),
        _field("policy", _STRING),
        _optional("filesToBeDeletedPerPartition", _map(_array(_STRING))),
        _version(),
        _optional(
            "filePathsToBeDeletedPerPartition",
            _map(_array(file)),
            "This field replaces the field filesToBeDeletedPerPartition",
        ),
        _optional("partitionsToBeDeleted", _array(_STRING), "partitions to be deleted"),
        _optional("extraMetadata", _map(_STRING, default=None)),
    )


def _clean_metadata() -> Schema:
    partition = _record(
        "HoodieCleanPartitionMetadata",
        *(_field(name, _STRING) for name in ("partitionPath", "policy")),
        *(_field(name, _array(_STRING)) for name in ("deletePathPatterns", "successDeleteFiles", "failedDeleteFiles")),
        _optional("isPartitionDeleted", "boolean"),
    )
    return _top(
        "HoodieCleanMetadata",
        _field("startCleanTime", _STRING),
        _field("timeTakenInMillis", "long"),
        _field("totalFilesDeleted", "int"),
        _field("earliestCommitToRetain", _STRING),
        _field("lastCompletedCommitTimestamp", _STRING, ""),
        _field("partitionMetadata", _map(partition)),
        _version(),
        _optional("bootstrapPartitionMetadata", _map("HoodieCleanPartitionMetadata", default=None)),
        _optional("extraMetadata", _map(_STRING, default=None)),
    )


def _instant_info() -> Schema:
    return _record("HoodieInstantInfo", _field("commitTime", _STRING), _field("action", _STRING))


def _rollback_plan() -> Schema:
    request = _record(
        "HoodieRollbackRequest",
        _field("partitionPath", _STRING),
        _optional("fileId", _STRING),
        _optional("latestBaseInstant", _STRING),
        _field("filesToBeDeleted", _array(_STRING, default=[]), []),
        _optional("logBlocksToBeDeleted", _map("long")),
    )
    return _top(
        "HoodieRollbackPlan",
        _optional("instantToRollback", _instant_info(), "Hoodie instant that needs to be rolled back"),
        _optional("RollbackRequests", _array(request)),
        _version(),
    )


def _rollback_fields() -> list[Schema]:
    partition = _record(
        "HoodieRollbackPartitionMetadata",
        _field("partitionPath", _STRING),
        *(_field(name, _array(_STRING)) for name in ("successDeleteFiles", "failedDeleteFiles")),
        *(_optional(name, _map("long")) for name in ("rollbackLogFiles", "logFilesFromFailedCommit")),
    )
    return [
        _field("startRollbackTime", _STRING),
        _field("timeTakenInMillis", "long"),
        _field("totalFilesDeleted", "int"),
        _field("commitsRollback", _array(_STRING)),
        _field("partitionMetadata", _map(partition)),
        _version(),
        _field("instantsRollback", _array(_instant_info(), default=[]), []),
    ]


def _restore_plan() -> Schema:
    return _top(
        "HoodieRestorePlan",
        _field("instantsToRollback", _array(_instant_info(), default=None), []),
        _version(2),
        _optional("savepointToRestoreTimestamp", _STRING),
    )


def _restore_metadata() -> Schema:
    rollback = _record("HoodieRollbackMetadata", *_rollback_fields())
    return _top(
        "HoodieRestoreMetadata",
        _field("startRestoreTime", _STRING),
        _field("timeTakenInMillis", "long"),
        _field("instantsToRollback", _array(_STRING)),
        _field("hoodieRestoreMetadata", _map(_array(["null", rollback], default=None))),
        _version(),
        _field("restoreInstantInfo", _array("HoodieInstantInfo", default=None), []),
    )


def _savepoint_metadata() -> Schema:
    partition = _record(
        "HoodieSavepointPartitionMetadata",
        _field("partitionPath", _STRING),
        _field("savepointDataFile", _array(_STRING)),
    )
    return _top(
        "HoodieSavepointMetadata",
        _field("savepointedBy", _STRING),
        _field("savepointedAt", "long"),
        _field("comments", _STRING),
        _field("partitionMetadata", _map(partition)),
        _version(),
    )


def _index_partitions(doc: str | None = None) -> Schema:
    partition = _record(
        "HoodieIndexPartitionInfo",
        _version(),
        _optional("metadataPartitionPath", _STRING),
        _optional("indexUptoInstant", _STRING),
        _optional("extraMetadata", _map(_STRING)),
    )
    return _optional("indexPartitionInfos", _array(partition), doc)


# Both texts are copied from another field in Hudi's own schema.
_COPIED_DOC = "This field replaces the field filesToBeDeletedPerPartition"


def _index_commit() -> Schema:
    return _top(
        "HoodieIndexCommitMetadata",
        _field("version", ["int", "null"], 1, _COPIED_DOC),
        _optional("operationType", _STRING, _COPIED_DOC),
        _index_partitions("This field contains the info for each partition that got indexed"),
    )


PLAN_SCHEMAS: Mapping[str, Schema] = {
    schema["name"]: schema
    for schema in (
        _commit("HoodieCommitMetadata", default=None),
        _commit("HoodieReplaceCommitMetadata", _optional("partitionToReplaceFileIds", _map(_array(_STRING)))),
        _top(
            "HoodieRequestedReplaceMetadata",
            _optional("operationType", _STRING),
            _optional("clusteringPlan", _clustering_plan()),
            _optional("extraMetadata", _map(_STRING)),
            _version(),
        ),
        _compaction_plan(),
        _cleaner_plan(),
        _clean_metadata(),
        _rollback_plan(),
        _top("HoodieRollbackMetadata", *_rollback_fields()),
        _restore_plan(),
        _restore_metadata(),
        _savepoint_metadata(),
        _top("HoodieIndexPlan", _version(), _index_partitions()),
        _index_commit(),
    )
}
"""Record name to schema, for all records that lakesql writes."""
