"""The errors of `test_bad_input`: case -> class and whole text. {lake}, {instant} and {file} stand for what differs."""

from lakesql import SQLError, TableError, Unsupported
from lakesql.services.spelling import OURS

MESSAGES: dict[str, tuple[type, str]] = {
    "table key_null": (
        TableError,
        "{lake}/trips: the record key is NULL or empty (columns: id), in 1 of 1 rows; the first is row 1 "
        "(path 'city=oslo'): id=None, v=1, price=None, at=None, ts=1, city='oslo'. Nothing was written.",
    ),
    "table key_missing": (
        TableError,
        "{lake}/trips: the rows lack the record key column id. Add it to the rows; NULL is not assumed.",
    ),
    "table partition_missing": (
        TableError,
        "{lake}/trips: the rows lack the partition column city. Add it to the rows; NULL is not assumed.",
    ),
    "table text_in_bigint": (
        TableError,
        "{lake}/trips: column v is BIGINT, the rows give VARCHAR; for example 'twelve' does not fit. Correct "
        "the rows, or CAST them as you mean it.",
    ),
    "table overflow": (
        TableError,
        "{lake}/trips: column v is BIGINT, the rows give UBIGINT; for example '9223372036854775808' does not "
        "fit. Correct the rows, or CAST them as you mean it.",
    ),
    "table overflow_in_python": (
        TableError,
        "the list of rows cannot be brought into columns: Python int too large to convert to C long. Give "
        "each column values of one type in its range, or a pyarrow table with a schema. Nothing was written.",
    ),
    "table decimal": (
        TableError,
        "{lake}/trips: column price is DECIMAL(6, 2), the rows give VARCHAR; for example '123456.78' does "
        "not fit. Correct the rows, or CAST them as you mean it.",
    ),
    "table text_in_timestamp": (
        TableError,
        "{lake}/trips: column at is TIMESTAMP WITH TIME ZONE, the rows give VARCHAR; for example 'yesterday' "
        "does not fit. Correct the rows, or CAST them as you mean it.",
    ),
    "table struct_in_bigint": (
        TableError,
        "{lake}/trips: column v is BIGINT, the rows give STRUCT(x BIGINT); for example \"{'x': 1}\" does not "
        "fit. Correct the rows, or CAST them as you mean it.",
    ),
    "table column_unknown": (
        TableError,
        "{lake}/trips: the rows have the column colour, the table has id, v, price, at, ts, city. Leave it "
        "out or rename it; in SQL, SET lakesql.schema.evolve = true adds it.",
    ),
    "table mixed_types": (
        TableError,
        "the list of rows cannot be brought into columns: Could not convert 'twelve' with type str: tried to "
        "convert to int64. Give each column values of one type in its range, or a pyarrow table with a "
        "schema. Nothing was written.",
    ),
    "table no_rows_at_all": (
        TableError,
        "rows of type int cannot be read; give a pyarrow table or reader, a pandas or polars data frame, a "
        "DuckDB relation or a list of dicts.",
    ),
    "table where_unknown_column": (
        SQLError,
        "{lake}/trips: condition 'colour = 1': Binder Error: Referenced column \"colour\" not found in FROM clause. "
        "The table has id, v, price, at, ts, city. Correct the condition.",
    ),
    "table where_no_condition": (
        SQLError,
        "{lake}/trips: condition 'id = = 1': Parser Error: syntax error at or near \"=\". Correct the condition.",
    ),
    "table read_where": (
        SQLError,
        "{lake}/trips: condition 'colour = 1': Binder Error: Referenced column \"colour\" not found in FROM clause. "
        "The table has id, v, price, at, ts, city. Correct the condition.",
    ),
    "table read_column": (
        TableError,
        "{lake}/trips: no column colour; the table has _hoodie_commit_time, _hoodie_commit_seqno, "
        "_hoodie_record_key, _hoodie_partition_path, _hoodie_file_name, id, v, price, at, ts, city.",
    ),
    "table read_mode": (
        SQLError,
        "{lake}/trips: mode 'fast' is unknown; use one of 'snapshot', 'read_optimized'.",
    ),
    "table as_of_no_time": (
        SQLError,
        "'someday' is not a point in time. Give an instant (17 or 14 digits), a date such as 2026-11-30, or "
        "a timestamp such as 2026-11-30 01:52:21.364.",
    ),
    "table changes_backwards": (
        SQLError,
        "{lake}/trips: begin 2025-01-01 is after end 2024-01-01; give the earlier time first.",
    ),
    "table changes_cdc": (
        Unsupported,
        "{lake}/trips: changes(kind='cdc'): change data capture is not read yet. Use 'latest_state' for the "
        "newest version of each changed row.",
    ),
    "table changes_kind": (
        SQLError,
        "{lake}/trips: changes(kind='odd') is unknown; use 'latest_state'.",
    ),
    "sql key_null": (
        TableError,
        "{lake}/trips: the record key is NULL or empty (columns: id), in 1 of 1 rows; the first is row 1 "
        "(path 'city=oslo'): id=None, v=1, price=None, at=None, ts=1, city='oslo'. Nothing was written.",
    ),
    "sql key_missing": (
        TableError,
        "{lake}/trips: the rows lack the record key column id. Add it to the rows; NULL is not assumed.",
    ),
    "sql partition_missing": (
        TableError,
        "{lake}/trips: the rows lack the partition column city. Add it to the rows; NULL is not assumed.",
    ),
    "sql text_in_bigint": (
        TableError,
        "{lake}/trips: column v is BIGINT, the rows give VARCHAR; for example 'twelve' does not fit. Correct "
        "the rows, or CAST them as you mean it."
        " Values without column names are taken in the order id, v, price, at, ts, city; partition columns come last.",
    ),
    "sql overflow": (
        TableError,
        "{lake}/trips: column v is BIGINT, the rows give HUGEINT; for example '9223372036854775808' does not "
        "fit. Correct the rows, or CAST them as you mean it."
        " Values without column names are taken in the order id, v, price, at, ts, city; partition columns come last.",
    ),
    "sql decimal": (
        TableError,
        "{lake}/trips: column price is DECIMAL(6, 2), the rows give DECIMAL(8,2); for example '123456.78' "
        "does not fit. Correct the rows, or CAST them as you mean it."
        " Values without column names are taken in the order id, v, price, at, ts, city; partition columns come last.",
    ),
    "sql text_in_timestamp": (
        TableError,
        "{lake}/trips: column at is TIMESTAMP WITH TIME ZONE, the rows give VARCHAR; for example 'yesterday' "
        "does not fit. Correct the rows, or CAST them as you mean it."
        " Values without column names are taken in the order id, v, price, at, ts, city; partition columns come last.",
    ),
    "sql column_unknown": (
        SQLError,
        "trips has no column colour; its columns are id, v, price, at, ts, city. SET lakesql.schema.evolve = true "
        "lets a statement add the columns of its query.",
    ),
    "sql column_unknown_by_name": (
        TableError,
        "{lake}/trips: the rows have the column colour, the table has id, v, price, at, ts, city. Leave it "
        "out or rename it; in SQL, SET lakesql.schema.evolve = true adds it.",
    ),
    "sql columns_too_few": (
        SQLError,
        "INSERT INTO trips expects 6 columns (id, v, price, at, ts, city), the query gives 2. List the "
        "columns, or use BY NAME.",
    ),
    "sql static_partition_unknown": (
        SQLError,
        "PARTITION (v): v is not a partition column of trips; it has city.",
    ),
    "sql update_text": (
        TableError,
        "trips: Conversion Error: Could not convert string 'twelve' to INT64. Correct the rows or the "
        "expression. Nothing was written.",
    ),
    "sql update_overflow": (
        TableError,
        "trips: Out of Range Error: Overflow in addition of INT64 (9223372036854775807 + 1)! Correct the "
        "rows or the expression. Nothing was written.",
    ),
    "sql update_decimal": (
        TableError,
        'trips: Conversion Error: Casting value "123456.78" to type DECIMAL(6,2) failed: value is out of '
        "range! Correct the rows or the expression. Nothing was written.",
    ),
    "sql update_timestamp": (
        TableError,
        'trips: Conversion Error: invalid timestamp field format: "yesterday", expected format is '
        "(YYYY-MM-DD HH:MM[:SS[.US]][±HH[:MM[:SS]]| ZONE]). Correct the rows or the expression. Nothing was "
        "written.",
    ),
    "sql update_unknown": (
        SQLError,
        "trips has no column colour; its columns are id, v, price, at, ts, city.",
    ),
    "sql update_where": (
        SQLError,
        'trips: Binder Error: Referenced column "colour" not found in FROM clause. '
        "The table has id, v, price, at, ts, city. Nothing was written.",
    ),
    "sql update_key": (
        SQLError,
        "UPDATE cannot set id: it is a record key column of trips, and a row is found by its key. DELETE the row and "
        "INSERT it with the new value.",
    ),
    "sql update_from": (
        Unsupported,
        "UPDATE ... FROM is not supported (line 1, column 26). Write it as MERGE INTO ... WHEN MATCHED THEN UPDATE.",
    ),
    "sql delete_unknown": (
        SQLError,
        'trips: Binder Error: Referenced column "colour" not found in FROM clause. '
        "The table has id, v, price, at, ts, city. Nothing was written.",
    ),
    "sql delete_using": (
        Unsupported,
        "DELETE ... USING is not supported (line 1, column 19). Write it as MERGE INTO ... WHEN MATCHED THEN DELETE.",
    ),
    "sql merge_two_for_one": (
        TableError,
        "trips: several source rows match the same row of the table: id=1, city=oslo. Make the source "
        "unique, or SET lakesql.merge.duplicates = 'first', 'last' or 'ordering'. Nothing was written.",
    ),
    "sql merge_two_for_one_on_mor": (
        TableError,
        "calls: several source rows match the same row of the table: id=1, city=oslo. Make the source "
        "unique, or SET lakesql.merge.duplicates = 'first', 'last' or 'ordering'. Nothing was written.",
    ),
    "sql merge_one_key_twice": (
        TableError,
        "trips: several source rows would insert the same key: id=7, city=oslo. Make the source unique, or "
        "SET lakesql.merge.duplicates = 'first', 'last' or 'ordering'. Nothing was written.",
    ),
    "sql merge_key_null": (
        TableError,
        "{lake}/trips: the record key is NULL or empty (columns: id), in 1 of 1 rows; the first is row 1 "
        "(path 'city=oslo'): id=None, v=None, price=None, at=None, ts=1, city='oslo'. Nothing was written.",
    ),
    "sql merge_without_key": (
        SQLError,
        "the ON condition does not compare the record key column id of trips with the source. Rows are "
        "written by key: ON must contain t.id = s.id (more conditions may follow with AND).",
    ),
    "sql merge_text": (
        TableError,
        "trips: Conversion Error: Could not convert string 'twelve' to INT64 when casting from source column "
        "v. Correct the rows or the expression. Nothing was written.",
    ),
    "sql merge_column_unknown": (
        SQLError,
        "trips has no column colour; its columns are id, v, price, at, ts, city.",
    ),
    "sql merge_source_column": (
        SQLError,
        'trips: Binder Error: Values list "s" does not have a column named "colour". Nothing was written.',
    ),
    "sql merge_star": (
        SQLError,
        "UPDATE SET * needs every column of trips in the source; missing: price, at, ts, city. Add them to "
        "the source, or list the columns.",
    ),
    "sql merge_source_absent": (
        SQLError,
        "trips: Catalog Error: Table with name nowhere does not exist!\n"
        'Did you mean "pg_indexes"? Nothing was written.',
    ),
    "sql merge_odd_clause": (
        SQLError,
        "expected MATCHED, found 'SOMETIMES'\n"
        "line 1, column 65:\n"
        "  MERGE INTO trips t USING (VALUES (1)) s(id) ON t.id = s.id WHEN SOMETIMES THEN DELETE\n"
        "                                                                  ^",
    ),
    "sql merge_without_clause": (
        SQLError,
        "expected WHEN MATCHED or WHEN NOT MATCHED, found the end of the statement\n"
        "line 1, column 59:\n"
        "  MERGE INTO trips t USING (VALUES (1)) s(id) ON t.id = s.id\n"
        "                                                            ^",
    ),
    "sql on_conflict": (
        Unsupported,
        "INSERT ... ON CONFLICT is not supported (line 1, column 56). SET "
        "hoodie.spark.sql.insert.into.operation = 'upsert', or use MERGE INTO.",
    ),
    "sql alter": (
        Unsupported,
        "ALTER TABLE on the Hudi table trips is not supported (line 1, column 13). SET "
        "lakesql.schema.evolve = true, and an INSERT ... BY NAME or a MERGE adds the columns that its query has and trips "
        "lacks.",
    ),
    "sql call": (
        SQLError,
        "CALL run_compaction: op => 'now': use run, schedule, execute or scheduleAndExecute.",
    ),
    "sql as_of_no_time": (
        SQLError,
        "'someday' is not a point in time. Give an instant (17 or 14 digits), a date such as 2026-11-30, or "
        "a timestamp such as 2026-11-30 01:52:21.364.",
    ),
    "sql version_no_instant": (
        SQLError,
        "'abc' is not a point in time. Give an instant (17 or 14 digits), a date such as 2026-11-30, or a "
        "timestamp such as 2026-11-30 01:52:21.364.",
    ),
    "sql mode": (
        SQLError,
        "{lake}/trips: mode 'fast' is unknown; use one of 'snapshot', 'read_optimized'.",
    ),
    "sql changes_no_begin": (
        SQLError,
        "hudi_incremental(trips): give begin, the time after which changes count, or 'earliest' for all.",
    ),
    "sql changes_backwards": (
        SQLError,
        "{lake}/trips: begin 2025-01-01 is after end 2024-01-01; give the earlier time first.",
    ),
    "sql changes_no_time": (
        SQLError,
        "'soon' is not a point in time. Give an instant (17 or 14 digits), a date such as 2026-11-30, or a "
        "timestamp such as 2026-11-30 01:52:21.364.",
    ),
    "sql changes_cdc": (
        Unsupported,
        "{lake}/trips: hudi_table_changes: change data capture is not read yet. Use 'latest_state' for the "
        "newest version of each changed row.",
    ),
    "sql changes_kind": (
        SQLError,
        "{lake}/trips: hudi_table_changes: kind 'odd' is unknown; use 'latest_state'.",
    ),
    "sql staleness": (
        SQLError,
        "max_staleness = 'soon', on_stale = 'error': must be a span of time such as '30s', '15 minutes' or '2 hours'.",
    ),
    "sql staleness_as_of": (
        SQLError,
        "{lake}/trips: as_of and max_staleness: give one of them; the past does not grow stale.",
    ),
    "sql on_stale": (
        SQLError,
        "max_staleness = None, on_stale = 'never': on_stale must be one of error, snapshot, warn.",
    ),
    "sql advice_reads": (
        SQLError,
        "{lake}/trips: reads_per_write 'many': give a number of 0 or more, for example 0.5 or 20.",
    ),
    "sql metadata": (
        Unsupported,
        "{lake}/trips: hudi_metadata is not available yet. hudi_properties shows which partitions the "
        "metadata table has.",
    ),
    "sql table_null": (
        SQLError,
        "hudi_scan: the table is NULL. Give a path, or the name of a table.",
    ),
    "create payload_class": (
        Unsupported,
        "{lake}/fresh: new table fresh: rows merge by com.acme.LargestWins, which nobody has registered, and lakesql "
        "cannot write to such a table. Leave that property out.",
    ),
    "create merge_mode": (
        Unsupported,
        "{lake}/fresh: new table fresh: rows merge by CUSTOM, which nobody has registered, and lakesql "
        "cannot write to such a table. Leave that property out.",
    ),
    "create merge_mode_unknown": (
        Unsupported,
        "{lake}/fresh: new table fresh: merge mode 'ODD' for a new table. Choose EVENT_TIME_ORDERING or "
        "COMMIT_TIME_ORDERING.",
    ),
    "create merge_strategy": (
        Unsupported,
        "{lake}/fresh: new table fresh: rows merge by CUSTOM, which nobody has registered, and lakesql "
        "cannot write to such a table. Leave that property out.",
    ),
    "create partial_update": (
        Unsupported,
        "{lake}/fresh: new table fresh: partial update mode KEEP_VALUES (hoodie.table.partial.update.mode) is "
        "unknown, and lakesql cannot write to such a table. Leave that property out.",
    ),
    "create event_time_without_field": (
        TableError,
        "{lake}/fresh: new table fresh: EVENT_TIME_ORDERING compares an ordering field and none is given. "
        "Name one, or use COMMIT_TIME_ORDERING.",
    ),
    "create type": (
        TableError,
        "{lake}/fresh: new table fresh: type 'fast' is unknown. Use cow or mor.",
    ),
    "create property": (
        SQLError,
        "table property colour is unknown; use type, primaryKey, orderingFields, preCombineField, "
        "recordMergeMode, payloadClass or a key that begins with hoodie.",
    ),
    "create key_column": (
        TableError,
        "{lake}/fresh: new table fresh: there is no column nope; the columns are id, ts.",
    ),
    "create ordering_column": (
        TableError,
        "{lake}/fresh: new table fresh: there is no column nope; the columns are id, ts.",
    ),
    "create cdc": (
        Unsupported,
        "table property hoodie.table.cdc.enabled = true: change data capture is not written yet. Leave it out.",
    ),
    "create version": (
        Unsupported,
        "{lake}/fresh: new table fresh: table version 7. lakesql creates tables of version 6, 8 and 9.",
    ),
    "create key_generator": (
        Unsupported,
        "{lake}/fresh: new table fresh: keys come from the key generator ODD, which lakesql does not know, "
        "and lakesql cannot write to such a table. Leave that property out.",
    ),
    "create table_format": (
        Unsupported,
        "{lake}/fresh: new table fresh: hoodie.properties: hoodie.table.format=iceberg. lakesql does not "
        "read such tables.",
    ),
    "setting hoodie.parquet.compression.codec": (
        TableError,
        "setting hoodie.parquet.compression.codec = 'brotli': must be one of zstd, snappy, gzip, lz4_raw, "
        "uncompressed, none. Correct the value or RESET hoodie.parquet.compression.codec.",
    ),
    "setting hoodie.parquet.max.file.size": (
        TableError,
        "setting hoodie.parquet.max.file.size = 'big': must be a whole number. Correct the value or RESET "
        "hoodie.parquet.max.file.size.",
    ),
    "setting hoodie.index.type": (
        Unsupported,
        "setting hoodie.index.type = RECORD_INDEX: lakesql knows SIMPLE, BLOOM, GLOBAL_SIMPLE, GLOBAL_BLOOM, BUCKET, "
        "INMEMORY. RESET hoodie.index.type, or write with Spark.",
    ),
    "setting hoodie.write.lock.wait_time_ms": (
        TableError,
        "setting hoodie.write.lock.wait_time_ms = '-1': must be at least 0. Correct the value or RESET "
        "hoodie.write.lock.wait_time_ms.",
    ),
    "setting hoodie.datasource.insert.dup.policy": (
        TableError,
        "setting hoodie.datasource.insert.dup.policy = 'maybe': must be one of none, drop, fail. Correct the "
        "value or RESET hoodie.datasource.insert.dup.policy.",
    ),
    "setting hoodie.table.timeline.timezone": (
        TableError,
        "setting hoodie.table.timeline.timezone = 'mars': must be one of utc, local. Correct the value or "
        "RESET hoodie.table.timeline.timezone.",
    ),
    "setting hoodie.write.concurrency.mode": (
        Unsupported,
        "setting hoodie.write.concurrency.mode = NON_BLOCKING_CONCURRENCY_CONTROL: lakesql has one writer at "
        "a time. RESET hoodie.write.concurrency.mode, or set OPTIMISTIC_CONCURRENCY_CONTROL.",
    ),
    "setting hoodie.index.bloom.fpp": (
        TableError,
        "setting hoodie.index.bloom.fpp = 'tiny': must be a number between 0 and 1. Correct the value or "
        "RESET hoodie.index.bloom.fpp.",
    ),
    "setting hoodie.combine.before.insert": (
        TableError,
        "setting hoodie.combine.before.insert = 'yes': must be true or false. Correct the value or RESET "
        "hoodie.combine.before.insert.",
    ),
    "setting hoodie.spark.sql.insert.into.operation": (
        SQLError,
        "setting hoodie.spark.sql.insert.into.operation = 'merge': use one of insert, upsert, bulk_insert.",
    ),
    "setting lakesql.merge.duplicates": (
        SQLError,
        "setting lakesql.merge.duplicates = 'all': use one of error, first, last, ordering.",
    ),
    "setting lakesql.nope": (
        SQLError,
        f"setting lakesql.nope is unknown; lakesql has {', '.join(OURS[:-1])} and {OURS[-1]}.",
    ),
    "setting hoodie.sql.insert.mode": (
        Unsupported,
        "setting hoodie.sql.insert.mode is obsolete. SET hoodie.spark.sql.insert.into.operation = 'insert', "
        "'upsert' or 'bulk_insert'.",
    ),
}
