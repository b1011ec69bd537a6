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
                what_was_sent_before_a_disconnect_arrives
            }
            $crate::topic! { $world, connecting, 120,
                client_and_server nobody_there_is_told_at_once a_request_times_out no_time_at_all_is_refused
                private_data_goes_both_ways a_rejection_with_too_much_data_still_rejects
                a_forgotten_request_is_rejected a_mismatch_leaves_the_request_usable only_an_idle_vi_accepts
                the_backlog_is_bounded a_request_given_up_leaves_its_place the_same_address_serves_again_and_again
                waiting_again_before_answering several_vis_share_an_address a_nic_connects_to_itself
                a_listener_that_goes_answers a_closed_server_answers a_client_closed_before_the_answer_is_read
            }
            $crate::topic! { $world, peering, 120,
                crossed_requests_meet_in_any_order many_peers_ask_first_and_wait_later only_crossed_requests_meet
                a_peer_request_times_out peers_must_agree a_pending_request_is_taken_back
                an_old_answer_is_not_taken_for_a_new_one an_unread_refusal_is_forgotten a_vi_connects_again
                reconnecting_does_not_need_empty_queues
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
