-- INSERT does not look keys up (Hudi's insert); upsert does; INSERT OVERWRITE replaces partitions.
CREATE TABLE visits (id BIGINT, page VARCHAR, day DATE) USING hudi PARTITIONED BY (day) TBLPROPERTIES (primaryKey = 'id');
INSERT INTO visits VALUES (1, 'home', '2024-01-01'), (2, 'shop', '2024-01-01'), (3, 'home', '2024-01-02');
SET hoodie.spark.sql.insert.into.operation = 'upsert';
INSERT INTO visits BY NAME SELECT DATE '2024-01-01' AS day, 2 AS id, 'cart' AS page;
RESET hoodie.spark.sql.insert.into.operation;
SELECT id, page, day::VARCHAR FROM visits ORDER BY id;
INSERT OVERWRITE visits PARTITION (day = '2024-01-02') SELECT 9 AS id, 'new' AS page;
SELECT id, page FROM visits WHERE day = '2024-01-02';
