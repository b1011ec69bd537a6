//! Every test of the suite, by topic.

/// Makes a `#[test]` of every test of the suite, in the world of this name: `suite!(loopback);`.
#[macro_export]
macro_rules! suite {
    ($world:ident) => {
        mod $world {
            $crate::topic! { $world, states, 120,
                a_new_vi_is_idle the_good_way_round each_side_learns_what_the_other_is
                a_remote_disconnect_means_error a_closed_nic_means_error_for_its_peers receives_are_posted_ahead
                sends_without_connection_are_flushed posts_in_error_are_flushed a_failed_request_leaves_the_vi_idle
                attributes_change_only_while_idle query_tells_the_lengths_of_queues
                messages_sent_before_a_disconnect_arrive
            }
            $crate::topic! { $world, connecting, 120,
                client_and_server a_request_times_out no_time_at_all_is_refused private_data_goes_both_ways
                a_rejection_with_too_much_data_still_rejects a_mismatch_leaves_the_request_usable
                only_an_idle_vi_accepts a_nic_connects_to_itself a_client_closed_before_the_answer_is_read
            }
            $crate::topic! { $world, listening, 120,
                a_request_without_a_listener_is_refused_at_once a_forgotten_request_is_rejected the_backlog_is_bounded
                a_request_given_up_leaves_its_place the_same_address_serves_again_and_again
                waiting_again_before_answering several_vis_share_an_address a_listener_that_goes_answers
                a_closed_server_answers a_listener_is_on_its_own_host
            }
            $crate::topic! { $world, peering, 120,
                crossed_requests_meet_in_any_order many_peers_ask_first_and_wait_later only_crossed_requests_meet
                a_peer_request_times_out peers_must_agree a_pending_request_is_taken_back
                an_old_answer_is_not_taken_for_a_new_one an_unread_refusal_is_forgotten a_vi_connects_again
                reconnecting_does_not_need_empty_queues
            }
            $crate::topic! { $world, completing, 180,
                queues_complete_in_posting_order a_message_completes_one_receive an_empty_queue_has_nothing
                lengths_are_those_of_the_message immediate_data_needs_no_segment the_senders_immediate_data_stays
                a_completion_tells_everything an_entry_means_done a_full_queue_refuses_and_recovers
                descriptors_are_used_again_and_again pieces_are_gathered_and_scattered
            }
            $crate::topic! { $world, waiting, 180,
                waiting_times_out a_sleeper_is_woken a_sleeper_is_woken_by_a_disconnect
                a_wait_moves_sends_of_other_vis a_wait_takes_in_messages_of_other_vis
                a_wait_leaves_early_messages_of_other_vis
                the_end_behind_messages_is_seen the_descriptor_tells one_look_after_arming_is_enough a_bound_queue_is_not_waited_on
            }
            $crate::topic! { $world, reliability, 180,
                data_arrives_once_and_in_order a_send_completes_without_the_receiver
                reception_means_that_it_is_there reception_waits_for_the_receive
                unreliable_drops_what_meets_no_receive delivery_breaks_when_nothing_is_posted
                reception_tells_which_send_failed too_long_for_the_receive too_long_for_the_vi
                losses_are_gaps_and_nothing_else a_break_is_seen_at_both_ends
                the_rest_of_a_lost_message_is_no_message
            }
            $crate::topic! { $world, flush, 180,
                disconnecting_flushes_our_side a_remote_disconnect_flushes_this_side sends_under_way_come_back
                an_error_flushes_the_rest flushing_reports_to_completion_queues
                failures_of_unsignalled_sends_are_told a_vi_goes_when_idle_and_drained receives_of_an_idle_vi_are_given_back
                an_object_in_use_is_not_destroyed
                sends_leave_before_a_disconnect sends_leave_before_a_nic_goes an_end_waits_no_longer_than_it_may
                a_completion_queue_goes_after_its_vi a_nic_goes_with_work_in_hand the_books_balance
            }
            $crate::topic! { $world, notify, 180,
                a_handler_runs_once handlers_fire_in_order a_handler_comes_late a_handler_posts_and_arms_again
                every_queue_notifies handlers_are_cancelled errors_are_called_back a_lost_connection_is_called_back
                a_clean_end_raises_nothing a_plain_nic_calls_back_in_place
                a_bound_queue_notifies_through_its_completion_queue a_removed_handler_has_returned
                a_handler_removes_itself
            }
            $crate::topic! { $world, sharing, 180,
                threads_wait_side_by_side a_waiter_is_woken_by_another_thread looking_does_not_wait_behind_a_waiter
                waiting_on_a_broken_vi_ends a_wait_on_a_shared_nic_moves_other_vis completions_are_futures
                sends_move_while_their_owner_makes_no_calls
                a_disconnect_holds_no_other_connection_up
            }
            $crate::topic! { $world, protection, 180,
                a_region_grants_rights a_vi_grants_rights remote_tags_must_match local_tags_must_match
                an_old_check_does_not_count bounds_hold guessed_handles_are_refused
                a_withdrawn_region_is_out_of_reach rights_change handles_belong_to_one_nic one_memory_two_handles
                a_refusal_is_told_to_the_initiator a_receive_may_end_beyond_its_region strict_receives_end_inside
            }
            $crate::topic! { $world, rdma, 180,
                a_write_lands_unseen a_read_brings_the_bytes heap_memory_is_a_target
                a_write_with_immediate_data_is_seen immediate_data_needs_a_receive pieces_on_the_local_side
                the_last_word_comes_last operations_keep_their_order a_fence_waits_for_reads
                contradictions_are_format_errors
            }
            $crate::topic! { $world, atomics, 180,
                atomics_change_words atomics_are_atomic
            }
            $crate::topic! { $world, memory, 180,
                every_kind_of_memory_works heap_memory_comes_back made_memory_is_fresh pieces_of_a_region
                thousands_of_regions regions_come_and_go dropping_while_a_peer_writes buffers_outlive_their_nic
                regions_have_limits a_segment_of_the_program_is_reached_by_peers one_segment_of_several_nics
                a_segment_goes_with_its_last_region memory_is_aligned_as_asked
                memory_that_was_not_registered_is_read
            }
            $crate::topic! { $world, srq, 180,
                vis_draw_from_one_store a_store_with_a_completion_queue an_empty_store_is_an_empty_queue
                a_full_ledger_holds_messages_back a_message_held_back_does_not_hide_the_end
                messages_held_back_outlive_their_sender waiting_on_a_store
                nothing_in_a_store_is_lost posting_to_a_store a_store_does_not_bypass_tags
            }
            $crate::topic! { $world, inline, 180,
                bytes_by_value writes_by_value bytes_by_value_have_limits busy_is_told_and_passes unsignalled_sends_are_reclaimed
                unsignalled_sends_and_completion_queues only_unsignalled_sends posting_a_batch receiving_in_batches
            }
            $crate::topic! { $world, value, 180,
                values_of_any_length a_value_is_written_into_its_receive values_keep_their_order values_have_limits
                values_are_taken_at_once messages_are_sent_whatever_their_length_and_nothing_comes_back
                a_message_that_was_not_sent_is_told
            }
            $crate::topic! { $world, nudging, 180,
                nudges_lose_no_wake_up a_nudge_makes_the_descriptor_readable a_nudge_carries_nothing
                waiting_for_memory_ends
            }
            $crate::topic! { $world, driving, 180,
                a_message_wakes_the_task_of_its_vi_alone a_thread_that_takes_in_for_another_wakes_it a_wait_has_a_deadline
                threads_that_wait_at_vis_get_what_is_theirs a_lookout_that_does_not_come_back_is_replaced
                without_a_service_thread_the_next_waiter_is_the_lookout closing_ends_every_wait_at_a_vi
                timers_need_no_calls the_service_thread_accepts sends_leave_without_their_owner a_watch_tells_of_each_message
                the_end_of_a_peer_ends_waits closing_ends_waits
            }
            $crate::topic! { $world, face, 180,
                a_flushed_receive_is_no_message scattered_bytes_are_all_given a_server_waits_for_clients_and_messages
                views_do_what_the_nic_does a_retired_vi_is_gone a_retired_vi_sends_what_was_posted a_retired_vi_has_its_time slices_end_where_rights_begin shared_bytes_are_sent
                connecting_is_asynchronous a_client_hears_why_it_was_refused completions_without_end_keep_no_client_waiting
            }
            $crate::topic! { $world, baduse, 180,
                unknown_vis unknown_queues unknown_tags_and_regions wrong_segments unknown_listeners_and_requests wrong_states
                wrong_descriptors wrong_numbers ranges_outside_buffers_panic a_forked_child_is_refused
                arming_out_of_turn a_forked_childs_views_are_refused
            }
            $crate::topic! { $world, badsharing, 180,
                unknown_objects_of_a_shared_nic a_closed_shared_nic_is_refused a_closed_driver_is_refused
            }
            $crate::topic! { $world, hooks, 180,
                counting a_nic_keeps_counters tracing failing losing_by_chance_is_repeatable
                breaking_one_connection refusing_steps refusing_to_accept delaying hooks_pass_everything_on
            }
            $crate::topic! { $world, ubertest, 3000,
                every_combination_carries_its_bytes
            }
            $crate::topic! { $world, cq, 300,
                one_queue_for_many the_two_queues_may_part entries_are_reserved resizing_while_in_use
                entries_go_with_their_vi direct_takers_and_the_queue_agree a_batch_is_no_larger_than_asked_for
                waiting_on_many two_queues_over_many_do_not_lose_each_other from_one_to_many
                no_message_is_slept_over no_vi_is_drowned_out
            }
        }
    };
}

/// The tests of one topic, with the seconds each may take before it counts as hung.
#[macro_export]
macro_rules! topic {
    ($world:ident, $topic:ident, $limit:literal, $($test:ident)*) => {
        mod $topic {
            $(
                #[test]
                fn $test() {
                    let name = concat!(stringify!($topic), "::", stringify!($test));
                    $crate::run($crate::harness::$world(), name, $limit, $crate::$topic::$test);
                }
            )*
        }
    };
}
