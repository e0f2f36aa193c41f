-- Which version of a row survives: by event time, by commit time, and rules that fill columns.
SET hoodie.spark.sql.insert.into.operation = 'upsert';

-- With an ordering field: the newer event, whenever it arrives.
CREATE TABLE by_event (id BIGINT, v VARCHAR, ts BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts');
INSERT INTO by_event VALUES (1, 'newer event', 20);
INSERT INTO by_event VALUES (1, 'older event', 10);
SELECT v FROM by_event;

-- Without one, or where the table says so: what is written last.
CREATE TABLE by_commit (id BIGINT, v VARCHAR, ts BIGINT) USING hudi
  TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts', recordMergeMode = 'COMMIT_TIME_ORDERING');
INSERT INTO by_commit VALUES (1, 'newer event', 20);
INSERT INTO by_commit VALUES (1, 'older event', 10);
SELECT v FROM by_commit;

-- A payload class: columns that hold their default keep the stored value.
CREATE TABLE partial (id BIGINT, a VARCHAR, b VARCHAR, ts BIGINT) USING hudi
  TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts', hoodie.write.table.version = '8',
    payloadClass = 'org.apache.hudi.common.model.PartialUpdateAvroPayload');
INSERT INTO partial VALUES (1, 'a1', 'b1', 10);
INSERT INTO partial VALUES (1, NULL, 'b2', 20);
SELECT a, b FROM partial;
INSERT INTO partial VALUES (1, 'a0', 'b0', 5);
SELECT a, b FROM partial;

SELECT value FROM hudi_properties('by_commit') WHERE key = 'hoodie.record.merge.mode';
