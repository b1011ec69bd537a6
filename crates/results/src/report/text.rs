//! Small matters of text: digits, escapes, lists of words.

/// Three significant digits: more would be a claim that no interval here supports.
pub fn digits(value: f64) -> String {
    let decimals =
        if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    format!("{value:.decimals$}")
}

/// Text as it may stand in HTML and SVG: what a result file says is not trusted.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // Not allowed in XML at all.
            c if c.is_control() && c != '\n' && c != '\t' => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

/// A number as on an axis: no digits that say nothing.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let text =
        if value.abs() >= 1e6 || value.abs() < 1e-3 { format!("{value:e}") } else { format!("{value:.4}") };
    if text.contains('.') && !text.contains('e') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// How many times, in words that fit the factor.
pub(crate) fn times(factor: f64) -> String {
    if factor >= 10.0 { format!("{factor:.0} times") } else { format!("{} times", digits(factor)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits() {
        let shown = [0.0, 0.0553, 1.0, 24.71, 199.6, 6123.4, -0.5].map(digits);
        assert_eq!(shown, ["0", "0.0553", "1.00", "24.7", "200", "6123", "-0.500"]);
    }

    #[test]
    fn nothing_of_a_label_becomes_markup() {
        assert_eq!(escape("<a href=\"x\">&\u{1}"), "&lt;a href=&quot;x&quot;&gt;&amp; ");
    }

    #[test]
    fn numbers_of_an_axis_are_short() {
        assert_eq!([0.0, 0.5, 10.0, 1500.0, 1e7, 0.01].map(short), ["0", "0.5", "10", "1500", "1e7", "0.01"]);
    }

    #[test]
    fn lists_read_as_sentences() {
        let words: Vec<String> = ["a", "b", "c"].map(Into::into).to_vec();
        assert_eq!(
            (list(&words[..1]), list(&words[..2]), list(&words)),
            ("a".into(), "a and b".into(), "a, b and c".into())
        );
    }
}
