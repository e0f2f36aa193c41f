-- Time travel and incremental reads: the instants come from the timeline.
CREATE TABLE prices (item VARCHAR, price BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'item');
INSERT INTO prices VALUES ('tea', 3), ('milk', 2);
UPDATE prices SET price = 4 WHERE item = 'tea';
SET VARIABLE first = (SELECT min(instant) FROM hudi_timeline('prices'));
SET VARIABLE done = (SELECT min(completed) FROM hudi_timeline('prices'));
SELECT item, price FROM hudi_scan('prices', as_of := getvariable('first')) ORDER BY item;
SELECT item, price FROM hudi_incremental('prices', getvariable('done'));
SELECT item, price FROM prices ORDER BY item;
