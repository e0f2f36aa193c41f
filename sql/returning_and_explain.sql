-- What a statement would do, and what it did: EXPLAIN, EXPLAIN (FATES), RETURNING; a row that moves to another partition; new columns.
CREATE TABLE trips (id BIGINT, fare DOUBLE, ts BIGINT, city VARCHAR) USING hudi PARTITIONED BY (city)
  TBLPROPERTIES (type = ':type', primaryKey = 'id', orderingFields = 'ts');
INSERT INTO trips VALUES (1, 10, 5, 'sf'), (2, 20, 5, 'ny'), (3, 30, 5, 'sf') RETURNING id, fare * 2;
-- result: (1, 20.0)
-- result: (2, 40.0)
-- result: (3, 60.0)
EXPLAIN (FATES) MERGE INTO trips t USING (VALUES (1, 11, 6, 'la'), (2, 0, 1, 'ny'), (4, 0, 6, 'sf')) s(id, fare, ts, city) ON t.id = s.id
  WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.fare > 0 THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE;
-- result: (1, '1', 'city=la', 'moved', 1)
-- result: (2, '2', 'city=ny', 'ignored (late)', 1)
-- result: (3, '4', None, 'no clause', None)
-- result: (None, '3', 'city=sf', 'deleted', 3)
SELECT count(*) FROM trips WHERE city = 'la';
-- result: (0,)
UPDATE trips SET city = 'la', fare = fare + 1 WHERE id = 1 RETURNING id, old.city, new.city, old.fare, fare;
-- result: (1, 'sf', 'la', 10.0, 11.0)
DELETE FROM trips WHERE fare > 25 RETURNING *;
-- result: (3, 30.0, 5, 'sf')
MERGE WITH SCHEMA EVOLUTION INTO trips t USING (SELECT 2 AS id, 'late night' AS note) s ON t.id = s.id
  WHEN MATCHED THEN UPDATE SET note = s.note RETURNING merge_action, id, note;
-- result: ('UPDATE', 2, 'late night')
SELECT id, fare, city, note FROM trips ORDER BY id;
-- result: (1, 11.0, 'la', None)
-- result: (2, 20.0, 'ny', 'late night')
