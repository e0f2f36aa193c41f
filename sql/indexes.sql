-- How a write finds a key: within the partition, in the whole table (rows move), or by a hash.
CREATE TABLE riders (id BIGINT, name VARCHAR, city VARCHAR) USING hudi PARTITIONED BY (city) TBLPROPERTIES (primaryKey = 'id');
SET hoodie.spark.sql.insert.into.operation = 'upsert';
INSERT INTO riders VALUES (1, 'ann', 'oslo'), (2, 'bob', 'rome');

-- A key is unique in its partition: the same key with another city is a second row.
INSERT INTO riders VALUES (1, 'ann', 'rome');
SELECT id, city FROM riders ORDER BY id, city;
DELETE FROM riders WHERE id = 1 AND city = 'oslo';

-- A global index: the row moves to its new partition, in one commit.
SET hoodie.index.type = 'GLOBAL_SIMPLE';
INSERT INTO riders VALUES (1, 'ann', 'bergen');
SELECT id, city FROM riders ORDER BY id;
RESET hoodie.index.type;

-- BLOOM looks into files only whose key range and Bloom filter do not exclude all rows.
SET hoodie.index.type = 'BLOOM';
INSERT INTO riders VALUES (2, 'bobby', 'rome');
SELECT id, name FROM riders ORDER BY id;
RESET hoodie.index.type;

-- BUCKET: the hash of the key says the file group.
CREATE TABLE scooters (id BIGINT, battery BIGINT) USING hudi
  TBLPROPERTIES (primaryKey = 'id', hoodie.index.type = 'BUCKET', hoodie.bucket.index.num.buckets = '4');
INSERT INTO scooters SELECT range, 100 FROM range(40);
INSERT INTO scooters VALUES (7, 55);
SELECT count(*) AS scooters, min(battery) AS lowest FROM scooters;
SELECT count(*) AS buckets FROM hudi_files('scooters') WHERE latest;
