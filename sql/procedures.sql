-- CALL: Hudi's stored procedures: what commits did, what is wrong and what mends it, dropping a partition, copying.
CREATE TABLE parcels (id BIGINT, state VARCHAR, depot VARCHAR) USING hudi PARTITIONED BY (depot)
  TBLPROPERTIES (type = ':type', primaryKey = 'id');
INSERT INTO parcels VALUES (1, 'new', 'oslo'), (2, 'new', 'oslo'), (3, 'new', 'rome');
INSERT INTO parcels VALUES (1, 'sent', 'oslo');
CALL show_table_properties(table => 'parcels', filter => "key = 'hoodie.table.recordkey.fields'");
-- result: ('hoodie.table.recordkey.fields', 'id')
CALL repair_add_partition_meta('parcels');
-- result: ('depot=oslo', 'Yes', 'None')
-- result: ('depot=rome', 'Yes', 'None')
CALL repair_deduplicate(table => 'parcels', duplicated_partition_path => 'depot=oslo');
-- result: ('1 copy of 1 key in partition depot=oslo would be removed; dry_run => false removes them.',)
CALL repair_deduplicate(table => 'parcels', duplicated_partition_path => 'depot=oslo', dry_run => false);
CALL doctor(table => 'parcels');
SELECT id, state FROM parcels ORDER BY id;
-- result: (1, 'sent')
-- result: (2, 'new')
-- result: (3, 'new')
CALL copy_to_temp_view(table => 'parcels', view_name => 'kept');
-- result: (0,)
CALL drop_partition(table => 'parcels', partition => 'depot=rome');
-- result: ('Success',)
SELECT count(*) FROM kept;
-- result: (2,)
SELECT count(*) FROM parcels;
-- result: (2,)
