-- What a table consists of.
CREATE TABLE boxes (id BIGINT, v VARCHAR, shelf VARCHAR) USING hudi PARTITIONED BY (shelf) TBLPROPERTIES (type = ':type', primaryKey = 'id');
INSERT INTO boxes VALUES (1, 'a', 'top'), (2, 'b', 'low');
SELECT state, operation, rows_written FROM hudi_timeline('boxes');
-- result: ('COMPLETED', 'INSERT', 2)
SELECT partition_path, file_groups, log_count FROM hudi_partitions('boxes') ORDER BY partition_path;
-- result: ('shelf=low', 1, 0)
-- result: ('shelf=top', 1, 0)
SELECT column_name, record_key, partition FROM hudi_schema('boxes');
-- result: ('id', True, False)
-- result: ('v', False, False)
-- result: ('shelf', False, True)
SELECT value FROM hudi_properties('boxes') WHERE key = 'hoodie.table.version';
-- result: ('9',)
SELECT count(*) FROM hudi_files('boxes');
-- result: (2,)
