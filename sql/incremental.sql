-- Incremental reads: what changed after a time, as a function, as a macro and as a view driven by variables.
CREATE TABLE stock (sku VARCHAR, pieces BIGINT) USING hudi TBLPROPERTIES (type = ':type', primaryKey = 'sku');
INSERT INTO stock VALUES ('nut', 100), ('bolt', 200), ('gear', 5);
SET VARIABLE loaded = (SELECT max(completed) FROM hudi_timeline('stock'));
UPDATE stock SET pieces = pieces - 10 WHERE sku = 'nut';
SET VARIABLE sold = (SELECT max(completed) FROM hudi_timeline('stock'));
MERGE INTO stock t USING (VALUES ('bolt', 200), ('gear', 6), ('axle', 1)) s(sku, pieces) ON t.sku = s.sku
  WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
SELECT sku, pieces FROM hudi_incremental('stock', getvariable('loaded')) ORDER BY sku;
-- result: ('axle', 1)
-- result: ('gear', 6)
-- result: ('nut', 90)
SELECT sku, pieces FROM hudi_incremental('stock', getvariable('loaded'), "end" := getvariable('sold'));
-- result: ('nut', 90)
SELECT sku, pieces FROM hudi_table_changes('stock', 'latest_state', getvariable('sold')) ORDER BY sku;
-- result: ('axle', 1)
-- result: ('gear', 6)
SELECT count(*) FROM stock_changes('earliest');
-- result: (4,)
SELECT count(*) FROM stock_incremental;
-- result: (4,)
SET VARIABLE hoodie_stock_consume_start_timestamp = getvariable('loaded');
SET VARIABLE hoodie_stock_consume_end_timestamp = getvariable('sold');
SELECT sku, pieces FROM stock_incremental;
-- result: ('nut', 90)
