-- Table services: compaction, clustering, cleaning, savepoint and restore; what is on the timeline afterwards.
CREATE TABLE tickets (id BIGINT, state VARCHAR, ts BIGINT) USING hudi
  TBLPROPERTIES (type = 'mor', primaryKey = 'id', orderingFields = 'ts');
INSERT INTO tickets SELECT range, 'new', 0 FROM range(100);
UPDATE tickets SET state = 'open', ts = 1 WHERE id < 10;

-- Compaction folds logs into base files.
SCHEDULE COMPACTION ON tickets;
SHOW COMPACTION ON tickets;
RUN COMPACTION ON tickets;
SELECT log_count FROM hudi_files('tickets') WHERE latest;

-- A savepoint keeps a state; a restore goes back to it.
CALL create_savepoint(table => 'tickets', comments => 'before the purge');
DELETE FROM tickets WHERE id >= 50;
SELECT count(*) FROM tickets;
CALL rollback_to_savepoint(table => 'tickets');
SELECT count(*) FROM tickets;
CALL delete_savepoint(table => 'tickets');

-- Clustering makes few sorted file groups of many.
SET hoodie.spark.sql.insert.into.operation = 'bulk_insert';
INSERT INTO tickets VALUES (100, 'new', 2);
INSERT INTO tickets VALUES (101, 'new', 2);
RESET hoodie.spark.sql.insert.into.operation;
SELECT count(*) AS file_groups FROM hudi_files('tickets') WHERE latest;
CALL run_clustering(table => 'tickets', order => 'id');
SELECT count(*) AS file_groups FROM hudi_files('tickets') WHERE latest;

-- Cleaning removes the files that no retained state needs.
CALL run_clean(table => 'tickets', clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1);
SELECT action, count(*) AS times FROM hudi_timeline('tickets') GROUP BY action ORDER BY action;
CALL doctor(table => 'tickets');
