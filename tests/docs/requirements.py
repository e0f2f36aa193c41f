"""What an ingestion must do, requirement by requirement, and the tests that show it (`docs/ingest/conformance.md`)."""

U = "tests/unit/ingest/"
Tests = tuple[str, ...]

REQUIREMENTS: dict[str, tuple[str, Tests]] = {
    "R1": ("one unit of work per topic partition, low and high offset fixed before any read", (
        U + "test_plan.py::test_stored_offsets_go_on_and_new_partitions_start_by_bootstrap",
        U + "test_client.py::test_what_arrives_after_planning_is_left_for_the_next_run")),
    "R2": ("units are merged and grouped into mr.job.max.mappers tasks", (
        U + "test_packing.py::test_every_range_is_in_exactly_one_task",
        U + "test_run.py::test_workers_share_the_tasks_and_the_heaviest_comes_first")),
    "R3": ("partitions are read from low to high, never past high, by an assigned consumer", (
        U + "test_client.py::test_every_range_is_read_from_low_to_high_and_no_further",)),
    "R4": ("a person's own decoder", (
        U + "test_decode_others.py::test_a_function_decodes_batches_and_marks_what_it_cannot",
        U + "test_parse_ingest.py::test_a_person_s_own_decoder_is_named_behind_python")),
    "R5": ("value bytes unchanged", (U + "test_decode_others.py::test_raw_values_are_bytes_unchanged",)),
    "R6": ("bytes to JSON by format, or by SQL over raw values", (
        U + "test_decode_json.py::test_documents_become_rows_of_the_given_columns_in_their_order",
        U + "test_sql.py::test_the_select_shapes_the_rows_and_may_join_tables_of_the_connection")),
    "R7": ("Avro with a registry", (
        U + "test_decode_avro.py::test_records_of_several_writers_come_out_in_the_latest_schema_in_their_order",)),
    "R8": ("output of each task in the folder of its topic", (
        U + "test_folders.py::test_without_any_setting_of_time_there_are_no_time_folders",
        U + "test_file_sink.py::test_records_with_another_schema_go_to_a_file_of_their_own")),
    "R9": ("folders chosen by a time inside the record", (
        U + "test_folders.py::test_the_well_known_sample_gives_the_folders_that_gobblin_gives",
        U + "test_file_sink.py::test_records_lie_in_the_folders_of_their_hours")),
    "R10": ("`lakesql ingest job.pull`; keys that mean nothing here are listed", (
        U + "test_sample_job.py::test_the_sample_runs_as_it_is_and_goes_on_where_it_stopped",
        U + "test_settings.py::test_unused_settings_are_listed_with_the_reason")),
    "R11": ("counters, meters and histograms per task", (
        U + "test_metrics.py::test_counters_of_all_tasks_sum_up_in_the_job",
        U + "test_run.py::test_a_decoder_of_a_person_counts_into_the_scope_of_its_task")),
    "R12": ("named events and timing events of a task", (
        U + "test_metrics.py::test_a_timing_event_has_its_duration_and_a_histogram",
        U + "test_metrics.py::test_events_are_handed_on_at_once_and_kept_up_to_a_bound")),
    "R13": ("job metrics are sums of the tasks', stored with the commit", (
        U + "test_run.py::test_a_commit_carries_the_metrics_of_the_run_under_the_names_of_the_reference",)),
    "R14": ("events of the job", (U + "test_metrics.py::test_events_are_handed_on_at_once_and_kept_up_to_a_bound",)),
    "R15": ("topic.whitelist: regular expressions, whole names, any case", (
        U + "test_plan.py::test_lists_match_whole_names_in_any_case_and_the_blacklist_wins",)),
    "R16": ("topic.blacklist wins; an empty whitelist means all", (
        U + "test_plan.py::test_lists_match_whole_names_in_any_case_and_the_blacklist_wins",)),
    "R17": ("kafka.brokers", (
        U + "test_sample_job.py::test_as_printed_the_sample_says_what_is_missing",
        U + "test_client.py::test_unreachable_brokers_are_named_within_the_timeout")),
    "R18": ("mr.job.max.mappers", (
        U + "test_packing.py::test_as_few_partitions_as_tasks_are_not_grouped",
        U + "test_packing.py::test_a_wanted_size_of_tasks_sets_their_number")),
    "R19": ("bootstrap.with.offset", (
        U + "test_plan.py::test_stored_offsets_go_on_and_new_partitions_start_by_bootstrap",
        U + "test_plan.py::test_what_latest_skips_is_said",
        U + "test_plan.py::test_bootstrap_skip_leaves_partitions_out_and_says_so")),
    "R20": ("reset.on.offset.out.of.range", (
        U + "test_plan.py::test_a_gap_is_counted_said_and_in_the_table",
        U + "test_plan.py::test_the_reset_rule_fail_reads_nothing",
        U + "test_plan.py::test_the_reset_rule_skip_keeps_the_partition_where_it_is",
        "tests/interop/test_kafka_broker.py::test_retention_overtakes_a_stored_offset")),
    "R21": ("topics.move.to.latest.offset", (U + "test_plan.py::test_topics_move_to_their_end",)),
    "R22": ("extract.limit.enabled", (U + "test_settings.py::test_a_limit_that_is_not_switched_on_is_noted",)),
    "R23": ("extract.limit.type", (U + "test_limits.py::test_a_limit_that_makes_no_sense_is_refused",)),
    "R24": ("extract.limit.time.limit and its newer spelling", (U + "test_settings.py::test_limits_in_both_spellings",)),
    "R25": ("kafka.schema.registry.url", (U + "test_decode_avro.py::test_no_registry_is_a_fault_of_the_job",)),
    "R26": ("job.name is the identity of offsets and lock", (
        U + "test_sql.py::test_its_offsets_go_by_its_name",
        U + "test_lock.py::test_jobs_of_different_names_do_not_meet")),
    "R27": ("job.lock.enabled; exactly once does not depend on it", (
        U + "test_lock.py::test_a_lock_that_is_switched_off_makes_no_file",
        U + "test_hudi_sink.py::test_of_two_runs_from_one_state_one_commits",
        U + "test_file_sink.py::test_two_runs_at_once_are_refused_and_the_first_ends_well")),
    "R28": ("source.class selects the decoder, both package names", (
        U + "test_settings.py::test_the_format_by_its_name_or_its_java_class",)),
    "R29": ("extract.namespace counts only when that is allowed", (
        U + "test_settings.py::test_the_namespace_counts_only_when_it_is_allowed_to",)),
    "R30": ("file output, Avro, local file system", (
        U + "test_settings.py::test_the_folder_of_files",
        U + "test_file_writers.py::test_fastavro_reads_every_codec")),
    "R31": ("data.publisher.type", (U + "test_settings.py::test_layout_and_format_of_files_by_java_classes",)),
    "R32": ("writer.builder.class", (U + "test_settings.py::test_layout_and_format_of_files_by_java_classes",)),
    "R33": ("writer.file.path.type", (U + "test_folders.py::test_the_folder_of_a_topic_follows_the_path_type",)),
    "R34": ("writer.partition.level", (U + "test_folders.py::test_level_and_pattern_default_to_days",)),
    "R35": ("writer.partition.pattern by Joda's letters", (
        U + "test_folders.py::test_the_well_known_sample_gives_the_folders_that_gobblin_gives",
        U + "test_folders.py::test_a_pattern_with_minutes_separates_minutes")),
    "R36": ("writer.partition.column.name; a path that is no time is refused", (
        U + "test_folders.py::test_a_configured_time_that_is_not_there_is_an_error",)),
    "R37": ("writer.partition.timezone", (
        U + "test_folders.py::test_without_a_time_zone_folders_are_in_utc",
        U + "test_folders.py::test_every_quarter_of_an_hour_of_a_zone_with_odd_offset_falls_where_its_clock_says")),
    "R38": ("LinkedIn's frame and registry", (
        U + "test_decode_avro.py::test_linkedin_frames_are_decoded",
        U + "test_registry.py::test_linkedin_schemas_are_found_by_their_md5_and_as_latest_of_a_topic")),
    "R39": ("Confluent's frame with a number", (
        U + "test_wire.py::test_confluent_frames_carry_a_number_or_a_guid_and_are_grouped_by_it",
        U + "test_registry.py::test_confluent_schemas_are_found_by_number_by_guid_and_as_latest_of_a_topic")),
    "R40": ("Confluent's GUID in a header", (
        U + "test_wire.py::test_a_schema_id_in_the_header_leaves_the_whole_value_as_payload_and_the_last_header_counts",)),
    "R41": ("no frame, a fixed schema", (
        U + "test_decode_avro.py::test_a_fixed_schema_is_the_reader_and_without_a_frame_the_writer_too",)),
    "R42": ("limit by time; the task succeeds", (
        U + "test_limits.py::test_a_time_limit_stops_between_batches",
        U + "test_run.py::test_a_limit_commits_what_was_read_and_the_next_run_goes_on_there")),
    "R43": ("limit by rate waits and drops nothing", (
        U + "test_limits.py::test_a_rate_limit_waits_and_units_below_a_second_count",
        U + "test_limits.py::test_a_slowed_reader_drops_nothing_and_can_be_left_anywhere")),
    "R44": ("limit by count", (
        U + "test_limits.py::test_a_count_limit_stops_at_the_record_and_closes_the_reader",
        U + "test_limits.py::test_reading_on_after_a_count_limit_gives_every_record_once")),
    "R45": ("limit by pool", (U + "test_limits.py::test_a_pool_lets_so_many_tasks_read_at_a_time",)),
    "R46": ("a second start of the same job fails at once", (
        U + "test_lock.py::test_a_living_run_refuses_others_and_names_itself_and_a_killed_one_is_taken_over",)),
    "R47": ("a run begins where the previous one ended, checked against earliest and latest", (
        U + "test_run.py::test_a_run_stores_every_record_and_the_next_run_stores_only_what_is_new",
        U + "test_plan.py::test_an_offset_past_the_end_is_said")),
    "R48": ("earliest and latest are asked for once, at planning", (
        U + "test_plan.py::test_bounds_of_all_partitions_are_asked_for_together",)),
    "exactly once": ("no record lost, none doubled, whatever dies", (
        U + "test_run_property.py::test_every_record_is_stored_once_whatever_fails",
        U + "test_sink_crash.py::test_run_that_dies_at_any_call_is_made_good_by_the_next",
        U + "test_file_sink.py::test_death_at_any_call_loses_nothing_and_doubles_nothing",
        "tests/crash/test_ingest_kill.py::test_every_record_is_there_once_however_often_runs_are_killed")),
    "bad input": ("brokers, topics, ids, schemas, frames, job files that are wrong", (
        U + "test_client.py::test_unreachable_brokers_are_named_within_the_timeout",
        U + "test_plan.py::test_no_topic_at_all_is_an_error_on_a_first_run_and_a_note_later",
        U + "test_decode_avro.py::test_unknown_ids_frames_and_torn_records_are_bad_and_the_others_are_rows",
        U + "test_decode_avro.py::test_a_writer_that_does_not_fit_the_reader_is_bad_at_stage_schema",
        U + "test_decode_avro.py::test_an_outage_of_the_registry_ends_decoding_and_is_no_bad_record",
        U + "test_jobfile.py::test_what_cannot_be_read_is_told_by_file_and_line")),
    "other engines": ("Spark and hudi-rs read and go on; Hudi Streamer's checkpoint", (
        "tests/interop/test_ingest.py::test_spark_and_an_ingestion_take_turns_on_one_table",
        "tests/interop/test_ingest.py::test_hudi_streamer_and_an_ingestion_go_on_from_each_other")),
}  # fmt: skip


def page() -> str:
    """The text of docs/ingest/conformance.md."""
    lines = [
        "# What an ingestion must do, and the tests that show it",
        "",
        "R1 to R48 are what Apache Gobblin's Kafka ingestion promises its users; `make regold` writes this page from",
        "`tests/docs/requirements.py`, and a test checks that each test named here exists.",
        "",
        "| | what | shown by |",
        "|---|---|---|",
    ]
    for name, (what, tests) in REQUIREMENTS.items():
        shown = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests)
        lines.append(f"| {name} | {what} | {shown} |")
    return "\n".join(lines) + "\n"
