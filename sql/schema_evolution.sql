-- New columns: added where a statement brings them and a setting, or the statement, asks for it. Older rows read NULL.
CREATE TABLE sensors (id BIGINT, value DOUBLE, place STRUCT(city VARCHAR)) USING hudi TBLPROPERTIES (primaryKey = 'id');
INSERT INTO sensors VALUES (1, 1.5, {'city': 'oslo'}), (2, 2.5, {'city': 'rome'});

-- By the statement.
MERGE WITH SCHEMA EVOLUTION INTO sensors t USING (SELECT 2 AS id, 3.5 AS value, 'volt' AS unit) s ON t.id = s.id
  WHEN MATCHED THEN UPDATE SET value = s.value, unit = s.unit;
SELECT id, value, unit FROM sensors ORDER BY id;

-- By a setting.
SET lakesql.schema.evolve = 'true';
INSERT INTO sensors BY NAME SELECT 3 AS id, 0.5 AS value, 'amp' AS unit, DATE '2026-01-01' AS since;
RESET lakesql.schema.evolve;
SELECT id, unit, since FROM sensors ORDER BY id;
SELECT column_name FROM hudi_schema('sensors');

-- A state from before does not know them.
SET VARIABLE first = (SELECT min(instant) FROM hudi_timeline('sensors'));
SELECT count(*) AS columns_then FROM (DESCRIBE SELECT * EXCLUDE (_hoodie_commit_time, _hoodie_commit_seqno, _hoodie_record_key,
  _hoodie_partition_path, _hoodie_file_name) FROM hudi_scan('sensors', as_of := getvariable('first')));
