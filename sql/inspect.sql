-- What a table consists of.
CREATE TABLE boxes (id BIGINT, v VARCHAR, shelf VARCHAR) USING hudi PARTITIONED BY (shelf) TBLPROPERTIES (primaryKey = 'id');
INSERT INTO boxes VALUES (1, 'a', 'top'), (2, 'b', 'low');
SELECT state, operation, rows_written FROM hudi_timeline('boxes');
SELECT partition_path, file_groups, log_count FROM hudi_partitions('boxes') ORDER BY partition_path;
SELECT column_name, record_key, partition FROM hudi_schema('boxes');
SELECT value FROM hudi_properties('boxes') WHERE key = 'hoodie.table.version';
SELECT count(*) FROM hudi_files('boxes');
