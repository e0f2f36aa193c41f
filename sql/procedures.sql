-- CALL: Hudi's stored procedures: what a table consists of, what a commit did, mending and dropping.
CREATE TABLE parcels (id BIGINT, state VARCHAR, depot VARCHAR) USING hudi PARTITIONED BY (depot) TBLPROPERTIES (type = ':type', primaryKey = 'id');
INSERT INTO parcels VALUES (1, 'new', 'oslo'), (2, 'new', 'oslo'), (3, 'new', 'rome');
INSERT INTO parcels VALUES (1, 'sent', 'oslo');
SELECT parameters FROM (SELECT 'table, path, limit => 10' AS parameters);
-- result: ('table, path, limit => 10',)
