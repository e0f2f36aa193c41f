-- CALL: Hudi's stored procedures: what commits did, what is wrong and what mends it, dropping a partition, copying.
CREATE TABLE parcels (id BIGINT, state VARCHAR, depot VARCHAR) USING hudi PARTITIONED BY (depot)
  TBLPROPERTIES (primaryKey = 'id');
INSERT INTO parcels VALUES (1, 'new', 'oslo'), (2, 'new', 'oslo'), (3, 'new', 'rome');
INSERT INTO parcels VALUES (1, 'sent', 'oslo');
CALL show_table_properties(table => 'parcels', filter => "key = 'hoodie.table.recordkey.fields'");
CALL repair_add_partition_meta('parcels');
CALL repair_deduplicate(table => 'parcels', duplicated_partition_path => 'depot=oslo');
CALL repair_deduplicate(table => 'parcels', duplicated_partition_path => 'depot=oslo', dry_run => false);
CALL doctor(table => 'parcels');
SELECT id, state FROM parcels ORDER BY id;
CALL copy_to_temp_view(table => 'parcels', view_name => 'kept');
CALL drop_partition(table => 'parcels', partition => 'depot=rome');
SELECT count(*) FROM kept;
SELECT count(*) FROM parcels;
