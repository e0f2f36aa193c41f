-- CREATE TABLE: columns, partitions and properties; from a query; a table that is there, under another name.
CREATE TABLE rides (id BIGINT NOT NULL COMMENT 'the key', city VARCHAR, fare DECIMAL(8, 2), ts TIMESTAMP) USING hudi
  PARTITIONED BY (city) COMMENT 'all rides' TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts');
SELECT column_name, record_key, partition, ordering FROM hudi_schema('rides');
SELECT comment FROM duckdb_views() WHERE view_name = 'rides';
CREATE TABLE IF NOT EXISTS rides (id BIGINT) USING hudi;
CREATE TABLE old_format USING hudi TBLPROPERTIES (primaryKey = 'id', hoodie.write.table.version = '6')
  AS SELECT range AS id, range * 10 AS fare FROM range(3);
SELECT id, fare FROM old_format ORDER BY id;
SHOW TBLPROPERTIES old_format ('hoodie.table.version');
SET VARIABLE path = (SELECT regexp_extract(sql, 'hudi_scan\(''(.*)''\)', 1) FROM duckdb_views() WHERE view_name = 'old_format');
SELECT count(*) FROM hudi_scan(getvariable('path'));
DROP TABLE old_format PURGE;
SELECT name FROM (SHOW TABLES) WHERE name IN ('rides', 'old_format');
