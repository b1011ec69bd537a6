//! Rules of a page's state machine that the simulator can break, to see that its tests find it. In a program all hold.

/// A rule that a decision looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// One operation at a time: a fault or a release waits for the one that is under way.
    OneAtATime,
    /// A node with changes that are not at the home stays in the sharing set.
    TwinStays,
    /// Another node gets the page alone only if the home itself has no mapping.
    AloneWithoutHome,
    /// A node that leaves, or sends a diff, lets no request wait for that.
    LeavesAnswering,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) const fn holds(_: Rule) -> bool {
    true
}

#[cfg(test)]
thread_local! {
    static BROKEN: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn holds(rule: Rule) -> bool {
    BROKEN.get() != Some(rule)
}

/// Breaks a rule in this thread, or none.
#[cfg(test)]
pub(crate) fn break_rule(rule: Option<Rule>) {
    BROKEN.set(rule);
}
