-- One script for both engines: what each statement gives must be the same on DuckDB and on Spark.
-- `test_two_engines.py` runs it over tables of version 6, 8 and 9; statements that must fail fail in the same class.
-- Queries that say so in a comment (once) try what the engines make of SQL, not of a table's version: they run over the newest alone.
CREATE TABLE trips (id INT, rider STRING, fare DOUBLE, price DECIMAL(8, 2), day DATE, seen TIMESTAMP, ts BIGINT, city STRING) USING hudi
  PARTITIONED BY (city) TBLPROPERTIES (type = 'mor', primaryKey = 'id', orderingFields = 'ts');
CREATE TABLE riders (name STRING, home STRUCT<town: STRING, zip: INT>, tags ARRAY<STRING>) USING hudi
  TBLPROPERTIES (type = 'cow', primaryKey = 'name');
INSERT INTO trips SELECT i, 'rider ' || i % 3, i * 1.25, i + 0.10, DATE '2026-01-01' + CAST(i AS INTEGER), TIMESTAMPTZ '2026-01-01 10:00:00+00', 100, CASE WHEN i % 2 = 0 THEN 'basel' ELSE 'bern' END FROM range(8) AS r(i);
INSERT INTO riders VALUES ('rider 0', {'town': 'Olten', 'zip': 4600}, ['a', NULL]), ('rider 1', NULL, []), ('rider 2', {'town': 'Thun', 'zip': NULL}, NULL);
SELECT * EXCLUDE (_hoodie_commit_time, _hoodie_commit_seqno, _hoodie_file_name) FROM trips ORDER BY id;
CREATE TEMP TABLE news AS SELECT * FROM (VALUES (1, 111.5, 150), (2, 222.0, 50), (9, 9.0, 100)) AS v(id, fare, ts);
MERGE INTO trips t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET fare = s.fare, ts = s.ts
  WHEN NOT MATCHED THEN INSERT (id, fare, ts, city) VALUES (s.id, s.fare, s.ts, 'chur');
SELECT id, rider, fare, price, city FROM trips ORDER BY rider, id DESC;
MERGE INTO trips t USING (SELECT 3 AS id UNION ALL SELECT 4) s ON t.id = s.id
  WHEN MATCHED AND t.city = 'bern' THEN DELETE WHEN MATCHED THEN UPDATE SET rider = 'merged', price = t.price + 1
  WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN UPDATE SET rider = 'not in the source' RETURNING merge_action, id, old.price AS was, new.price AS is_now;
MERGE INTO trips t USING (VALUES (5, 1.0), (5, 2.0)) AS s(id, fare) ON t.id = s.id WHEN MATCHED THEN UPDATE SET fare = s.fare;
MERGE INTO trips t USING (VALUES (5, 1.0)) AS s(id, fare) ON t.id = s.id WHEN MATCHED THEN ERROR 'no fives';
UPDATE trips SET fare = fare / 2, rider = upper(rider) WHERE id BETWEEN 4 AND 6;
UPDATE trips SET fare = fare WHERE id = 4;
UPDATE trips SET city = 'zug' WHERE id = 6;
DELETE FROM trips WHERE id IN (SELECT id FROM news WHERE id > 8);
UPDATE trips SET id = 77 WHERE id = 1;
UPDATE trips SET nothing = 1;
INSERT INTO trips (id, ts, city) VALUES (NULL, 1, 'x');
INSERT INTO trips VALUES (1, 2);
INSERT INTO trips (id, rider, fare, ts, city) SELECT id + 20, rider, fare, ts, city FROM trips WHERE city = 'basel';
SELECT /* once */ city, count(*) AS n, sum(id) AS ids, avg(fare) AS fare, max(price) AS top, min(day) AS first FROM trips GROUP BY city ORDER BY city;
SELECT /* once */ id // 2 AS half, id / 2 AS exact, id % 2 AS odd, fare IS NOT DISTINCT FROM price AS same, coalesce(rider, '?') || ' in ' || city AS words FROM trips ORDER BY id;
SELECT /* once */ r.name, r.home.town AS town, r.tags, count(t.id) AS trips FROM riders r LEFT JOIN trips t ON t.rider = r.name GROUP BY ALL ORDER BY r.name;
WITH /* once */ best AS (SELECT city, id, row_number() OVER (PARTITION BY city ORDER BY fare DESC, id) AS place FROM trips) SELECT city, id FROM best WHERE place = 1 ORDER BY city;
SELECT /* once */ id FROM trips WHERE rider LIKE 'RIDER_%' OR rider IS NULL ORDER BY id;
SELECT /* once */ id, day, seen, CAST(seen AS DATE) AS seen_day, year(day) AS y FROM trips WHERE day > DATE '2026-01-02' + INTERVAL 1 DAY ORDER BY day, id;
SELECT id FROM trips_ro WHERE id < 3 ORDER BY id;
SET VARIABLE first = (SELECT min(instant) FROM hudi_timeline('trips'));
SELECT id, rider, fare FROM hudi_scan('trips', as_of := getvariable('first')) ORDER BY id;
SET VARIABLE third = (SELECT completed FROM hudi_timeline('trips') ORDER BY instant LIMIT 1 OFFSET 2);
SELECT id, fare FROM hudi_incremental('trips', coalesce(getvariable('third'), getvariable('first'))) ORDER BY id;
SELECT action, state, count(*) AS n FROM hudi_timeline('trips') GROUP BY ALL ORDER BY ALL;
SELECT stale_groups > 0 AS stale FROM hudi_freshness('trips');
SELECT missing FROM trips;
SELECT * FROM no_such_table;
SELECT /* once */ CAST(city AS INTEGER) AS x FROM trips;
INSERT OVERWRITE trips PARTITION (city = 'bern') (id, rider, ts) VALUES (50, 'over', 500);
MERGE INTO `riders` t USING (SELECT 'rider 3' AS name) s ON t.name = s.name WHEN NOT MATCHED THEN INSERT (name, tags) VALUES (s.name, NULL);
SELECT /* once */ name FROM riders WHERE EXISTS (SELECT 1 FROM trips WHERE trips.rider = riders.name) OR name > 'rider 2' ORDER BY name;
CREATE TABLE totals USING hudi TBLPROPERTIES (primaryKey = 'city') AS SELECT city, count(*) AS n, sum(fare) AS fare FROM trips GROUP BY city;
SELECT city, n, fare FROM totals ORDER BY city;
CALL run_compaction(op => 'scheduleAndExecute', table => 'trips');
SELECT id, rider, fare, price, ts, city FROM trips ORDER BY id;
TRUNCATE TABLE riders;
SELECT count(*) AS n FROM riders;
DROP TABLE totals;
