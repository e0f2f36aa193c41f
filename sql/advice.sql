-- Copy-on-Write or Merge-on-Read for this table, worked out from its own commits.
CREATE TABLE accounts (id BIGINT, balance BIGINT, ts BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts');
INSERT INTO accounts SELECT range, 0, 0 FROM range(10000);
UPDATE accounts SET balance = 1, ts = 1 WHERE id % 1000 = 1;
UPDATE accounts SET balance = 2, ts = 2 WHERE id % 1000 = 2;
UPDATE accounts SET balance = 3, ts = 3 WHERE id % 1000 = 3;

-- What the commits did decides; seconds and the break-even depend on the machine, so they are not shown here.
SELECT DISTINCT topic FROM hudi_advice('accounts') ORDER BY topic;
SELECT count(*) > 0 AS has_numbers FROM hudi_advice('accounts', reads_per_write := 20) WHERE value IS NOT NULL;
