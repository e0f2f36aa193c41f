-- Incremental reads: what changed after a time, as a function, as a macro and as a view driven by variables.
CREATE TABLE stock (sku VARCHAR, pieces BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'sku');
INSERT INTO stock VALUES ('nut', 100), ('bolt', 200), ('gear', 5);
SET VARIABLE loaded = (SELECT max(completed) FROM hudi_timeline('stock'));
UPDATE stock SET pieces = pieces - 10 WHERE sku = 'nut';
SET VARIABLE sold = (SELECT max(completed) FROM hudi_timeline('stock'));
MERGE INTO stock t USING (VALUES ('bolt', 200), ('gear', 6), ('axle', 1)) s(sku, pieces) ON t.sku = s.sku
  WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
SELECT sku, pieces FROM hudi_incremental('stock', getvariable('loaded')) ORDER BY sku;
SELECT sku, pieces FROM hudi_incremental('stock', getvariable('loaded'), "end" := getvariable('sold'));
SELECT sku, pieces FROM hudi_table_changes('stock', 'latest_state', getvariable('sold')) ORDER BY sku;
SELECT count(*) FROM stock_changes('earliest');
SELECT count(*) FROM stock_incremental;
SET VARIABLE hoodie_stock_consume_start_timestamp = getvariable('loaded');
SET VARIABLE hoodie_stock_consume_end_timestamp = getvariable('sold');
SELECT sku, pieces FROM stock_incremental;
