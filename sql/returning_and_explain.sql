-- What a statement would do, and what it did: EXPLAIN, EXPLAIN (FATES), RETURNING; a row that moves to another partition; new columns.
CREATE TABLE trips (id BIGINT, fare DOUBLE, ts BIGINT, city VARCHAR) USING hudi PARTITIONED BY (city)
  TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts');
INSERT INTO trips VALUES (1, 10, 5, 'sf'), (2, 20, 5, 'ny'), (3, 30, 5, 'sf') RETURNING id, fare * 2;
EXPLAIN (FATES) MERGE INTO trips t USING (VALUES (1, 11, 6, 'la'), (2, 0, 1, 'ny'), (4, 0, 6, 'sf')) s(id, fare, ts, city) ON t.id = s.id
  WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.fare > 0 THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE;
SELECT count(*) FROM trips WHERE city = 'la';
UPDATE trips SET city = 'la', fare = fare + 1 WHERE id = 1 RETURNING id, old.city, new.city, old.fare, fare;
DELETE FROM trips WHERE fare > 25 RETURNING *;
MERGE WITH SCHEMA EVOLUTION INTO trips t USING (SELECT 2 AS id, 'late night' AS note) s ON t.id = s.id
  WHEN MATCHED THEN UPDATE SET note = s.note RETURNING merge_action, id, note;
SELECT id, fare, city, note FROM trips ORDER BY id;
