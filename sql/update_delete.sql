-- UPDATE and DELETE with any condition, against the merged view.
CREATE TABLE stock USING hudi TBLPROPERTIES (primaryKey = 'sku') AS SELECT 'sku' || range AS sku, range AS pieces FROM range(5);
UPDATE stock SET pieces = pieces + 100 WHERE pieces >= 3;
DELETE FROM stock WHERE sku IN (SELECT 'sku' || range FROM range(2));
SELECT * EXCLUDE (_hoodie_commit_time, _hoodie_commit_seqno, _hoodie_record_key, _hoodie_partition_path, _hoodie_file_name) FROM stock ORDER BY sku;
