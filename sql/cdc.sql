-- Change data: which rows a range of commits added, changed and removed, with the values before and after.
CREATE TABLE members (id BIGINT, name VARCHAR, plan VARCHAR) USING hudi TBLPROPERTIES (primaryKey = 'id');
INSERT INTO members VALUES (1, 'ann', 'basic'), (2, 'bob', 'basic'), (3, 'cid', 'gold');
SET VARIABLE loaded = (SELECT max(completed) FROM hudi_timeline('members'));
MERGE INTO members t USING (VALUES (1, 'ann', 'gold', false), (3, 'cid', 'gold', true), (4, 'dan', 'basic', false)) s(id, name, plan, gone)
  ON t.id = s.id
  WHEN MATCHED AND s.gone THEN DELETE
  WHEN MATCHED THEN UPDATE SET name = s.name, plan = s.plan
  WHEN NOT MATCHED THEN INSERT (id, name, plan) VALUES (s.id, s.name, s.plan);

-- Both sides of each row that differs; a removed row has its old values in `old`.
SELECT change, coalesce(id, old.id) AS id, plan, old.plan AS plan_before, columns
FROM hudi_diff('members', getvariable('loaded')) ORDER BY 2;

-- What a reader of changes would apply: the newest state of the rows that are there.
SELECT id, plan FROM hudi_table_changes('members', 'latest_state', getvariable('loaded')) ORDER BY id;

-- The fate of each row of a statement, at the moment it runs.
UPDATE members SET plan = 'basic' WHERE plan = 'gold' RETURNING id, old.plan, new.plan;
