//! A progress bar on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar labelled `what`; invisible unless standard error is a terminal.
    pub(crate) fn new(what: &'static str) -> Progress {
        // Few redraws: the bar shares the machine with what is being measured.
        let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(4));
        let style = ProgressStyle::with_template("{prefix} {msg:>6} [{bar:40}] {percent}% {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_prefix(what);
        bar.reset_eta();
        Progress { bar }
    }

    /// `done` runs from 0 to 1.
    pub(crate) fn show(&mut self, message: &str, done: f64) {
        if self.bar.message() != message {
            self.bar.set_message(message.to_owned());
        }
        self.bar.set_position((done * 1000.0) as u64);
    }

    /// Removes the bar.
    pub(crate) fn clear(self) {
        self.bar.finish_and_clear();
    }
}
