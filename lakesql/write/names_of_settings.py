"""The names of table properties and settings of SQL statements: Hudi's keys, Spark's short names, what we refuse.

Only names; what they do is said where they are read. `services.spelling` knows all of them.
"""

from lakesql.write.create import TYPES

SYNONYMS = {
    "type": "type",
    "hoodie.table.type": "type",
    "hoodie.datasource.write.table.type": "type",
    "primaryKey": "primary_key",
    "hoodie.table.recordkey.fields": "primary_key",
    "hoodie.datasource.write.recordkey.field": "primary_key",
    "orderingFields": "ordering_fields",
    "preCombineField": "ordering_fields",
    "hoodie.table.ordering.fields": "ordering_fields",
    "hoodie.table.precombine.field": "ordering_fields",
    "hoodie.datasource.write.precombine.field": "ordering_fields",
    "hoodie.table.partition.fields": "partitioned_by",
    "hoodie.datasource.write.partitionpath.field": "partitioned_by",
    "hoodie.write.table.version": "version",
    "hoodie.table.version": "version",
    "hoodie.table.name": "name",
    "recordMergeMode": "hoodie.record.merge.mode",
    "hoodie.write.record.merge.mode": "hoodie.record.merge.mode",
    "recordMergeStrategyId": "hoodie.record.merge.strategy.id",
    "payloadClass": "hoodie.compaction.payload.class",
    "hoodie.datasource.write.payload.class": "hoodie.compaction.payload.class",
    "hoodie.datasource.write.keygenerator.type": "hoodie.table.keygenerator.type",
}
UNSUPPORTED = {
    "hoodie.datasource.write.keygenerator.class": "name the key generator by hoodie.table.keygenerator.type",
    "hoodie.table.keygenerator.class": "name the key generator by hoodie.table.keygenerator.type",
}
ABSENT = {
    "hoodie.populate.meta.fields": ("false", "tables without meta columns are read, not written"),
    "hoodie.table.cdc.enabled": ("true", "change data capture is not written yet"),
    "hoodie.datasource.write.drop.partition.columns": ("true", "partition columns are always stored"),
    "hoodie.schema.on.read.enable": ("true", "schema-on-read is read, not written"),
}


OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
DUPLICATES = "lakesql.merge.duplicates"
EVOLVE, RECONCILE = "lakesql.schema.evolve", "hoodie.datasource.write.reconcile.schema"
"""The settings that ask for new columns; either is enough."""
INSERT_OPERATION = "hoodie.spark.sql.insert.into.operation"
FLAGS = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.datasource.write.drop.partition.columns",
    RECONCILE,
    "hoodie.populate.meta.fields",
    "hoodie.schema.on.read.enable",
    "hoodie.table.cdc.enabled",
)
CHOICES: dict[str, tuple[str, ...]] = {
    INSERT_OPERATION: ("insert", "upsert", "bulk_insert"),
    "hoodie.datasource.overwrite.mode": ("static", "dynamic"),
    OVERWRITE_MODE: ("static", "dynamic"),
    **{key: ("6", "8", "9") for key, meaning in SYNONYMS.items() if meaning == "version"},
    **{key: tuple(TYPES) for key, meaning in SYNONYMS.items() if meaning == "type"},
    **dict.fromkeys(FLAGS, ("true", "false")),
}
OTHERS = (
    "hoodie.base.file.format",
    "hoodie.bucket.index.max.num.buckets",
    "hoodie.bucket.index.min.num.buckets",
    "hoodie.combine.before.upsert",
    "hoodie.database.name",
    "hoodie.datasource.write.operation",
    "hoodie.datasource.write.storage.type",
    "hoodie.datasource.write.table.name",
    "hoodie.datasource.write.slash.separated.date.partitioning",
    "hoodie.index.type",
    "hoodie.logfile.max.size",
    "hoodie.payload.delete.field",
    "hoodie.payload.delete.marker",
    "hoodie.record.merge.mode",
    "hoodie.record.merge.strategy.id",
    "hoodie.table.base.file.format",
    "hoodie.table.log.file.format",
    "hoodie.table.ro.file.format",
    "hoodie.table.rt.file.format",
    "hoodie.timeline.layout.version",
    "hoodie.write.concurrency.mode",
    "hoodie.write.record.merge.strategy.id",
)
"""Keys of Hudi that mean nothing to a choice above, and that are known or near to known ones."""
