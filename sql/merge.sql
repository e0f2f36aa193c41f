-- MERGE INTO: update, late data, delete and insert in one commit. The same rows on Copy-on-Write and Merge-on-Read.
CREATE TABLE accounts (id BIGINT, owner VARCHAR, balance BIGINT, ts BIGINT) USING hudi
  TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts');
INSERT INTO accounts VALUES (1, 'ann', 100, 10), (2, 'bob', 50, 10), (3, 'cid', 70, 10);
MERGE INTO accounts a USING (VALUES (1, 'ann', 120, 20, false), (2, 'bob', 0, 5, false), (3, 'cid', 0, 20, true), (4, 'dan', 10, 20, false))
    s(id, owner, balance, ts, closed) ON a.id = s.id
  WHEN MATCHED AND s.closed THEN DELETE
  WHEN MATCHED THEN UPDATE SET balance = s.balance, ts = s.ts
  WHEN NOT MATCHED THEN INSERT (id, owner, balance, ts) VALUES (s.id, s.owner, s.balance, s.ts);
SELECT id, owner, balance FROM accounts ORDER BY id;
MERGE INTO accounts a USING (SELECT 1 AS id) s ON a.id = s.id WHEN NOT MATCHED BY SOURCE AND a.balance < 20 THEN DELETE;
SELECT id FROM accounts ORDER BY id;
