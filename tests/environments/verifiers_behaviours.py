"""The behaviours that verifiers tests in its eval command, registry, files and paths, and their counterparts here.

The tests are those of 0.1.14. For each, `SAME` names a test of ours that shows the same behaviour, `DIFFERENT` the row
of docs/reference/verifiers-differences.md that gives the difference and its reason, and `NOT_OURS` why it concerns the
code of verifiers alone. Its tests of rubrics are all of that kind: a rubric is the environment's own code.
"""

# ruff: noqa: E501 (names are not broken)

from __future__ import annotations

N_TESTS = {
    "test_eval_cli": 67,
    "test_endpoint_registry": 16,
    "test_save_utils": 53,
    "test_path_utils": 4,
}
"""The number of tests in each file of verifiers."""

_TOMLS = "tests/unit/config/test_verifiers_tomls.py"
_ENTRIES = "tests/unit/config/test_entries.py"
_PAGE = "tests/environments/test_the_page.py"
_OPTIONS = "tests/plugin/test_prime_options.py"
_ENDPOINTS = "tests/unit/config/test_endpoints.py"
_TARGETS = "tests/unit/models/test_endpoint_targets.py"
_FILES = "tests/plugin/test_prime_files.py"
_TOTALS = "tests/unit/environments/test_prime_totals.py"

MEANS_THE_SAME = f"{_TOMLS}::test_a_toml_of_verifiers_means_the_same"
REFUSED = f"{_TOMLS}::test_a_toml_that_verifiers_refuses_is_refused"

SAME: dict[str, dict[str, str]] = {
    "test_eval_cli": {
        "test_cli_single_env_id": f"{_PAGE}::test_basic_usage",
        "test_get_env_eval_defaults_for_package_module": "tests/unit/config/test_environment_config.py::test_an_environment_may_be_a_package",
        "test_get_env_eval_defaults_for_single_file_module": "tests/unit/config/test_environment_config.py::test_defaults_of_the_package_are_below_every_other_level",
        "test_cli_sampling_args_fill_from_flags_when_missing": f"{_OPTIONS}::test_names_of_prime_eval_set_our_keys",
        "test_cli_no_sampling_args_uses_flags": f"{_OPTIONS}::test_names_of_prime_eval_set_our_keys",
        "test_cli_temperature_not_added_when_none": f"{_OPTIONS}::test_names_of_prime_eval_set_our_keys",
        "test_cli_extra_env_kwargs_support_timeout_seconds": MEANS_THE_SAME,
        "test_cli_registry_headers_merged_with_eval_toml": f"{_PAGE}::test_headers",
        "test_cli_multi_variant_preserves_per_row_registry_headers": f"{_ENDPOINTS}::test_entries_with_one_id_are_replicas_and_keys_have_two_names",
        "test_cli_endpoint_alias_multi_variant_sets_multi_base_urls": f"{_TARGETS}::test_an_id_leads_to_all_of_its_replicas",
        "test_cli_model_flag_resolves_endpoint_alias_when_registry_present": f"{_PAGE}::test_an_alias_of_the_registry",
        "test_cli_model_flag_uses_endpoint_client_type_when_provided": f"{_PAGE}::test_the_anthropic_messages_of_the_registry",
        "test_cli_direct_fields_work_without_endpoint_registry": f"{_TARGETS}::test_other_names_are_those_of_providers",
        "test_cli_endpoint_alias_multi_variant_supports_mixed_keys": f"{_ENDPOINTS}::test_entries_with_one_id_are_replicas_and_keys_have_two_names",
        "test_cli_endpoint_id_resolves_registry_alias": f"{_TARGETS}::test_an_id_leads_to_all_of_its_replicas",
        "test_cli_endpoint_id_accepts_directory_endpoints_path": f"{_ENDPOINTS}::test_entries_with_one_id_are_replicas_and_keys_have_two_names",
        "test_cli_endpoint_id_not_found_raises": f"{_TARGETS}::test_a_name_that_is_no_endpoint_lists_the_ids",
        "test_cli_endpoint_id_requires_toml_endpoints_path": f"{_ENDPOINTS}::test_a_named_registry_must_be_there",
        "test_ablation_endpoint_id_override_removes_global_model": f"{_ENTRIES}::test_a_key_of_an_entry_replaces_another_that_excludes_it",
        "test_cli_resume_explicit_path": f"{_PAGE}::test_saving_and_resuming",
        **dict.fromkeys(
            (
                "test_cli_headers_table_and_list_merge",
                "test_load_toml_config_single_eval",
                "test_load_toml_config_multi_env",
                "test_load_toml_config_with_env_args",
                "test_cli_multi_env_via_toml_config",
                "test_cli_toml_per_env_num_examples",
                "test_cli_toml_per_env_rollouts_per_example",
                "test_cli_toml_per_eval_settings_used",
                "test_cli_toml_mixed_per_env_and_defaults_fallback",
                "test_cli_toml_without_settings_uses_defaults",
                "test_load_toml_config_global_values_with_per_eval_override",
                "test_load_toml_config_with_extra_env_kwargs",
                "test_load_toml_config_with_top_level_timeout",
                "test_ablation_basic_expansion",
                "test_ablation_cartesian_product",
                "test_ablation_args_sweep",
                "test_ablation_global_defaults_apply",
                "test_ablation_swept_model_override_removes_global_endpoint_id",
                "test_ablation_with_eval_blocks",
                "test_ablation_multiple_blocks",
                "test_ablation_env_id_in_sweep",
            ),
            MEANS_THE_SAME,
        ),
        **dict.fromkeys(
            (
                "test_toml_api_base_url_list_is_not_supported",
                "test_load_toml_config_missing_env_section",
                "test_load_toml_config_empty_eval_list",
                "test_load_toml_config_missing_id",
                "test_load_toml_config_partial_missing_env_id",
                "test_load_toml_config_invalid_field",
                "test_load_toml_config_invalid_global_field",
                "test_ablation_empty_sweep_raises",
                "test_ablation_invalid_field_raises",
                "test_ablation_invalid_sweep_field_raises",
                "test_ablation_missing_id_raises",
                "test_ablation_overlapping_args_raises",
            ),
            REFUSED,
        ),
    },
    "test_endpoint_registry": {
        "test_load_endpoints_rejects_python_registry_path": f"{_ENDPOINTS}::test_a_named_registry_must_be_there",
        "test_load_endpoints_toml_accepts_matching_short_and_long_fields": f"{_ENDPOINTS}::test_entries_with_one_id_are_replicas_and_keys_have_two_names",
        **dict.fromkeys(
            (
                "test_load_endpoints_toml_groups_variants_by_endpoint_id",
                "test_load_endpoints_toml_accepts_long_field_names",
                "test_load_endpoints_toml_accepts_type_shorthand",
                "test_load_endpoints_toml_accepts_headers_table",
                "test_load_endpoints_toml_accepts_extra_headers_alias",
            ),
            f"{_ENDPOINTS}::test_entries_with_one_id_are_replicas_and_keys_have_two_names",
        ),
        "test_client_config_validates_extra_header_keys": f"{_ENDPOINTS}::test_every_mistake_is_reported_with_its_line",
    },
    "test_save_utils": {
        **dict.fromkeys(
            (
                "TestSavingMetadata::test_serialize_metadata",
                "TestSavingResults::test_states_to_outputs",
                "TestSavingResults::test_states_to_outputs_completion_keeps_messages",
            ),
            f"{_FILES}::test_each_session_leaves_the_files_of_prime_eval",
        ),
        **dict.fromkeys(
            (
                "TestResumeMetadataValidation::test_validate_resume_metadata_accepts_matching_config",
                "TestLoadOutputs::test_ignores_malformed_trailing_line",
            ),
            f"{_FILES}::test_files_of_another_program_begin_a_new_run",
        ),
        "TestResumeMetadataValidation::test_validate_resume_metadata_raises_on_mismatch": f"{_FILES}::test_files_of_another_eval_are_refused_with_the_differences",
        **dict.fromkeys(
            (
                "TestBuilderPassAtK::test_builder_includes_pass_at_k",
                "TestBuilderPassAtK::test_builder_uses_custom_threshold",
                "TestPassAtKMetric::test_incomplete_examples_excluded",
                "TestPassAtKMetric::test_add_outputs",
                "TestPassAtKMetric::test_empty",
                "TestPassAtKMetric::test_single_rollout",
                "TestPassAtKMetric::test_custom_threshold",
                "TestPassAtKMetric::test_all_correct",
                "TestPassAtKMetric::test_none_correct",
                "TestPassAtKMetric::test_partial_correctness",
                "TestPassAtKMetric::test_multiple_examples_averaged",
                "TestPassAtKMetric::test_n3_k_values",
                "TestPassAtKMetric::test_correctness_threshold_boundary",
            ),
            f"{_TOTALS}::test_pass_rates_are_those_of_verifiers",
        ),
        "TestPassAtKMetric::test_powers_of_two_k_selection": f"{_TOTALS}::test_k_is_each_power_of_two_up_to_the_number_of_runs",
        **dict.fromkeys(
            (
                "TestRewardMetric::test_basic",
                "TestRewardMetric::test_missing_reward_defaults_to_zero",
                "TestErrorRateMetric::test_basic",
                "TestInputTokensMetric::test_skips_outputs_without_usage",
                "TestOutputTokensMetric::test_skips_outputs_without_usage",
                "TestEnvMetrics::test_basic",
                "TestEnvMetrics::test_sparse_keys",
                "TestEnvMetrics::test_empty",
            ),
            f"{_TOTALS}::test_metrics_and_usage_are_means_over_the_lines_that_have_them",
        ),
    },
}

DIFFERENT: dict[str, dict[str, str]] = {
    "test_eval_cli": {
        "test_cli_sampling_args_precedence_over_flags": "`--sampling-args` wins over",
        "test_cli_timeout_flag_overrides_extra_env_kwargs": "`--timeout` (0.1.14)",
        "test_cli_accepts_openai_responses_client_type": "the client types `openai_responses`",
        "test_cli_accepts_nemorl_chat_completions_client_type": "the client types `openai_responses`",
        "test_load_toml_config_single_eval_id_alias": "`id` for `env_id`",
        "test_load_toml_config_rejects_id_and_env_id": "`id` for `env_id`",
        "test_load_toml_config_with_args_taskset_harness": "`id` for `env_id`",
        "test_ablation_args_sweep_key_is_explicitly_freeform": "`id` for `env_id`",
        "test_ablation_id_aliases_normalize_to_env_id": "`id` for `env_id`",
        "test_cli_toml_ignores_cli_args": "with a TOML, options are ignored",
        "test_load_toml_config_resolves_endpoints_path_relative_to_config": "`endpoints_path` starts from",
        "test_cli_resume_auto_detects_latest_incomplete": "`--resume` finds the newest",
        "test_cli_toml_resume_false_disables_global_resume": "`resume` is a key",
    },
    "test_endpoint_registry": {
        **dict.fromkeys(
            (
                "test_load_endpoints_rejects_deprecated_client_type_field",
                "test_load_endpoints_toml_rejects_conflicting_url_fields",
                "test_load_endpoints_toml_rejects_conflicting_key_fields",
                "test_load_endpoints_toml_rejects_headers_and_extra_headers_together",
                "test_load_endpoints_malformed_headers_string_falls_back_to_empty_registry",
            ),
            "a mistake in the registry is a warning",
        ),
        "test_load_endpoints_directory_uses_toml_and_warns_on_ignored_python": "a registry in Python",
        "test_load_endpoints_toml_accepts_openai_responses_type": "the client types `openai_responses`",
    },
    "test_save_utils": {
        "TestSavingResults::test_non_serializable_state_column_raises": "a state column that JSON cannot hold",
        "TestSaveNewOutputs::test_truncates_malformed_trailing_line_before_append": "they are appended",
        "TestLoadOutputs::test_raises_for_malformed_non_trailing_line": "a torn last line",
        "TestResumeMetadataValidation::test_validate_resume_metadata_accepts_increased_num_examples": "more rows may",
    },
    "test_path_utils": {
        "test_find_latest_incomplete_eval_results_path_picks_newest_matching": "`--resume` finds the newest",
        "test_find_latest_incomplete_eval_results_path_returns_none_when_no_match": "`--resume` finds the newest",
        "test_is_valid_eval_results_path_requires_files": "`--resume` finds the newest",
        "test_is_valid_eval_results_path_accepts_expected_layout": "`--resume` finds the newest",
    },
}

_SERIALIZER = (
    "a function inside verifiers that makes values JSON; the host makes the state JSON, and keeps the rest as text"
)
_ACCUMULATOR = "the state inside a class of verifiers; our figures are made of the journal, by functions without state"
_REPOSITORY = "the files in the repository of verifiers"

NOT_OURS: dict[str, dict[str, str]] = {
    "test_eval_cli": {
        "test_repo_eval_example_configs_are_valid": _REPOSITORY,
    },
    "test_endpoint_registry": {"test_qwen3_vl_endpoint_ids_map_to_vl_models": _REPOSITORY},
    "test_save_utils": {
        **dict.fromkeys(
            (
                "TestSerialization::test_serialize_simple_pydantic_model",
                "TestSerialization::test_serialize_nested_pydantic_model",
                "TestSerialization::test_serialize_datetime",
                "TestSerialization::test_serializable_date",
                "TestSerialization::test_serialize_path",
                "TestSerialization::test_serialize_exception",
                "TestSerialization::test_serialize_unknown_type",
                "TestSavingMetadata::test_generate_outputs_builder_serializes_endpoint_configs_base_url",
                "TestSavingResults::test_extract_usage_tokens_prompt_completion",
                "TestSavingResults::test_extract_usage_tokens_input_output",
                "TestSavingResults::test_extract_usage_tokens_invalid_values",
                "TestSavingResults::test_state_with_tracker_and_no_usage_does_not_emit_token_usage",
                "TestSavingResults::test_states_to_outputs_preserves_multimodal_images_as_base64",
                "TestSavingResults::test_states_to_outputs_preserves_input_audio_payloads",
                "TestSavingResults::test_states_to_outputs_preserves_multimodal_completion_content",
            ),
            _SERIALIZER,
        ),
        **dict.fromkeys(
            (
                "TestMetricProtocol::test_all_metrics_satisfy_protocol",
                "TestRewardMetric::test_add_outputs",
                "TestRewardMetric::test_reset",
                "TestEnvMetrics::test_reset",
                "TestPassAtKMetric::test_incremental_matches_batch",
                "TestPassAtKMetric::test_reset",
            ),
            _ACCUMULATOR,
        ),
    },
}
