"""Names of Hudi's stored procedures, so that a CALL of one is refused by name and every other CALL goes to DuckDB."""

PROCEDURES = frozenset(
    """
    archive_commits cleanup_audit_lock commits_compare copy_to_table copy_to_temp_view create_metadata_table
    create_savepoint delete_marker delete_metadata_table delete_savepoint downgrade_table drop_partition
    export_instants hdfs_parquet_import help hive_sync init_metadata_table partition_bucket_index_manager
    repair_add_partition_meta repair_corrupted_clean_files repair_deduplicate repair_migrate_partition_meta
    repair_overwrite_hoodie_props rollback_to_instant rollback_to_savepoint run_bootstrap run_clean run_clustering
    run_compaction run_rollback_inflight_tableservice run_ttl set_audit_lock show_archived_commits
    show_archived_commits_metadata show_audit_lock_status show_bootstrap_mapping show_bootstrap_partitions
    show_clean_plans show_cleans show_cleans_metadata show_clustering show_commit_extra_metadata show_commit_files
    show_commit_partitions show_commit_write_stats show_commits show_commits_metadata show_compaction show_file_status
    show_fs_path_detail show_fsview_all show_fsview_latest show_invalid_parquet show_logfile_metadata
    show_logfile_records show_metadata_table_column_stats show_metadata_table_files show_metadata_table_partitions
    show_metadata_table_stats show_rollback_detail show_rollbacks show_savepoints show_table_properties show_timeline
    stats_file_sizes stats_wa sync_validate truncate_table upgrade_table validate_audit_lock
    validate_metadata_table_files
    """.split()
)
