//! Matching against the plainest thing that is right: lists that are searched from the beginning.

use proptest::prelude::*;

use super::*;

fn envelope(source: i32, tag: i32) -> Envelope {
    Envelope { context: 1, source, tag }
}

fn pattern(source: Option<i32>, tag: Option<i32>) -> Pattern {
    Pattern { context: 1, source, tag }
}

#[derive(Clone, Debug)]
enum Step {
    Post(Pattern),
    Arrive(Envelope),
    Cancel(usize),
    Probe(Pattern),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any_pattern = || {
        (0..2u32, proptest::option::of(0..3i32), proptest::option::of(0..3i32))
            .prop_map(|(context, source, tag)| Pattern { context, source, tag })
    };
    let any_envelope =
        (0..2u32, 0..3i32, 0..3i32).prop_map(|(context, source, tag)| Envelope { context, source, tag });
    let step = prop_oneof![
        3 => any_pattern().prop_map(Step::Post),
        3 => any_envelope.prop_map(Step::Arrive),
        1 => (0..40usize).prop_map(Step::Cancel),
        1 => any_pattern().prop_map(Step::Probe),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }) })]

    #[test]
    fn queues_match_as_plain_lists_do(steps in steps()) {
        let (mut posted, mut unexpected) = (Posted::new(), Unexpected::new());
        let (mut plain_posted, mut plain_unexpected) = (Vec::<(Pattern, usize)>::new(), Vec::<(Envelope, usize)>::new());
        let mut entries = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Post(pattern) => {
                    let plain = plain_unexpected.iter().position(|(envelope, _)| pattern.takes(envelope));
                    let plain = plain.map(|at| plain_unexpected.remove(at));
                    let taken = unexpected.take(&pattern);
                    prop_assert_eq!(taken, plain);
                    if taken.is_none() {
                        plain_posted.push((pattern, number));
                        entries.push((number, posted.post(pattern, number)));
                    }
                }
                Step::Arrive(envelope) => {
                    let plain = plain_posted.iter().position(|(pattern, _)| pattern.takes(&envelope));
                    let plain = plain.map(|at| plain_posted.remove(at).1);
                    let taken = posted.take(&envelope);
                    prop_assert_eq!(taken, plain);
                    if taken.is_none() {
                        plain_unexpected.push((envelope, number));
                        unexpected.push(envelope, number);
                    }
                }
                Step::Cancel(which) => {
                    let Some((number, entry)) = entries.get(which).copied() else { continue };
                    let plain = plain_posted.iter().position(|(_, value)| *value == number);
                    let plain = plain.map(|at| plain_posted.remove(at).1);
                    prop_assert_eq!(posted.cancel(entry), plain);
                }
                Step::Probe(pattern) => {
                    let plain = plain_unexpected.iter().find(|(envelope, _)| pattern.takes(envelope));
                    let found = unexpected.find(&pattern).and_then(|entry| unexpected.get(entry));
                    prop_assert_eq!(found, plain.map(|(envelope, value)| (envelope, value)));
                }
            }
            prop_assert_eq!((posted.len(), unexpected.len()), (plain_posted.len(), plain_unexpected.len()));
        }
    }
}

#[test]
fn the_receive_posted_first_wins_over_a_closer_one() {
    let mut posted = Posted::new();
    posted.post(pattern(None, Some(7)), "any source");
    posted.post(pattern(Some(3), Some(7)), "exact");
    posted.post(pattern(Some(3), None), "any tag");
    assert_eq!(posted.take(&envelope(3, 7)), Some("any source"));
    assert_eq!(posted.take(&envelope(3, 7)), Some("exact"));
    assert_eq!(posted.take(&envelope(2, 7)), None);
    assert_eq!(posted.take(&envelope(3, 9)), Some("any tag"));
    assert!(posted.is_empty());
}

#[test]
fn an_entry_that_was_matched_cannot_be_cancelled() {
    let mut posted = Posted::new();
    let first = posted.post(pattern(Some(0), Some(0)), 1);
    assert_eq!(posted.take(&envelope(0, 0)), Some(1));
    posted.post(pattern(Some(0), Some(0)), 2);
    assert_eq!(posted.cancel(first), None, "its place has another entry now");
    assert_eq!(posted.take(&envelope(0, 0)), Some(2));
}

#[test]
fn queues_of_tags_that_were_used_once_are_given_back() {
    let mut posted = Posted::new();
    for tag in 0..10_000 {
        posted.post(pattern(Some(0), Some(tag)), tag);
        assert_eq!(posted.take(&envelope(0, tag)), Some(tag));
    }
    assert!(format!("{posted:?}").len() < 100_000, "a few hundred queues at the most");
}

/// What a message costs, in queues and entries looked at, with so many receives that are matched in reverse order.
fn looks_with(count: i32, open: Option<i32>) -> f64 {
    let mut posted = Posted::new();
    for tag in 0..count {
        posted.post(pattern(open.map_or(Some(0), |_| None), Some(tag)), tag);
    }
    for tag in (0..count).rev() {
        assert_eq!(posted.take(&envelope(0, tag)), Some(tag));
    }
    posted.lists.looks() as f64 / f64::from(count)
}

#[test]
fn ten_thousand_receives_in_reverse_order_cost_no_more_for_each_message_than_ten() {
    for open in [None, Some(0)] {
        let (few, many) = (looks_with(10, open), looks_with(10_000, open));
        assert!(many <= few * 1.5, "{many} for each of 10,000, {few} for each of 10");
    }
}

#[test]
fn ten_thousand_early_messages_in_reverse_order_cost_no_more_for_each_receive_than_ten() {
    let looks = |count: i32| {
        let mut early = Unexpected::new();
        for tag in 0..count {
            early.push(envelope(0, tag), tag);
        }
        for tag in (0..count).rev() {
            assert_eq!(early.take(&pattern(Some(0), Some(tag))).map(|(_, value)| value), Some(tag));
        }
        early.lists.looks() as f64 / f64::from(count)
    };
    let (few, many) = (looks(10), looks(10_000));
    assert!(many <= few * 1.5, "{many} for each of 10,000, {few} for each of 10");
}
