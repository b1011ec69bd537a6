//! `--dry-run`: what each rank would be started with, as lines for a shell. Pure.

use std::fmt::Write;

use crate::environment;
use crate::plan::NodePlan;

/// A line for each rank, with a remark that says where it belongs.
pub fn script(plans: &[NodePlan]) -> String {
    let mut text = String::new();
    for plan in plans {
        for (local, rank) in plan.ranks.iter().enumerate() {
            let Some(program) = plan.programs.get(rank.app as usize) else { continue };
            let _ = writeln!(text, "# rank {} on {}", rank.rank, plan.host);
            if let Some(folder) = &program.folder {
                let _ = write!(text, "cd {} && ", quoted(folder));
            }
            text.push_str("env");
            // The socket of PMI exists only while a launcher runs.
            let list = environment::of_rank(plan, local, 0);
            for (name, value) in list.iter().filter(|(name, _)| name != "PMI_FD") {
                let _ = write!(text, " {name}={}", quoted(value));
            }
            for word in &program.command {
                let _ = write!(text, " {}", quoted(&String::from_utf8_lossy(word)));
            }
            text.push('\n');
        }
    }
    text
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "_-./:=,@%+".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for word in ["plain", "", "with blank", "it's", "$HOME", "a\"b", "new\nline", "*"] {
            let output = std::process::Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", quoted(word)))
                .output();
            assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), word);
        }
    }
}
