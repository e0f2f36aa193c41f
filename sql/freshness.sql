-- No silent staleness: how far the read-optimized view lags, and reads that ask for freshness.
CREATE TABLE meters (id BIGINT, value BIGINT, ts BIGINT) USING hudi
  TBLPROPERTIES (type = 'mor', primaryKey = 'id', orderingFields = 'ts');
INSERT INTO meters VALUES (1, 10, 1), (2, 20, 1);
UPDATE meters SET value = 21, ts = 2 WHERE id = 2;
DELETE FROM meters WHERE id = 1;

SELECT id, value FROM meters ORDER BY id;
SELECT id, value FROM meters_ro ORDER BY id;
SELECT lag_commits, stale_groups, log_files, rows_inserted, rows_updated, rows_deleted FROM hudi_freshness('meters', exact := true);

-- A read that accepts no lag gets the snapshot instead.
SELECT id, value FROM hudi_read_optimized('meters', max_staleness := '0 seconds', on_stale := 'snapshot');

RUN COMPACTION ON meters;
SELECT id, value FROM meters_ro;
SELECT lag_commits, lag_s FROM hudi_freshness('meters');
