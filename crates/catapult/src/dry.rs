//! `--dry-run`: what each rank would be started with, as lines for a shell. Pure.
//!
//! The lines make a job by themselves. The token is in a file, so that it is neither on the screen nor in the history of
//! a shell; where no launcher answers PMI, ranks of ours meet at rank 0.

use std::fmt::Write;

use crate::environment;
use crate::hosts::Host;
use crate::plan::NodePlan;

/// A line for each rank, with a remark that says where it belongs. Ranks meet at `meet`; `token` is the file of their
/// token.
pub fn script(plans: &[NodePlan], meet: &str, token: &str) -> String {
    let mut text = String::new();
    let far: Vec<&str> = plans.iter().map(|plan| &*plan.host).filter(|host| !is_local(host)).collect();
    if !far.is_empty() {
        let _ =
            writeln!(text, "# the token has to be on {} too: {}, mode 600", far.join(", "), quoted(token));
    }
    for plan in plans {
        for (local, rank) in plan.ranks.iter().enumerate() {
            let Some(program) = plan.programs.get(rank.app as usize) else { continue };
            let _ = writeln!(text, "# rank {} on {}", rank.rank, plan.host);
            if let Some(folder) = &program.folder {
                let _ = write!(text, "cd {} && ", quoted(folder));
            }
            text.push_str("env");
            // The socket of PMI exists only while a launcher runs.
            let mut list = environment::of_rank(plan, local, 0);
            list.retain(|(name, _)| !matches!(&**name, "PMI_FD" | "VIADUCT_TOKEN" | "VIADUCT_TOKEN_FILE"));
            let own = [("VIADUCT_TOKEN_FILE", token), ("VIADUCT_MEET", meet)];
            list.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
            text.push_str(" -u VIADUCT_TOKEN");
            for (name, value) in &list {
                let _ = write!(text, " {name}={}", quoted(value));
            }
            for word in &program.command {
                let _ = write!(text, " {}", quoted(&String::from_utf8_lossy(word)));
            }
            text.push_str(" &\n");
        }
    }
    text.push_str("wait\n");
    text
}

fn is_local(host: &str) -> bool {
    Host { name: host.to_owned(), slots: 1 }.is_local()
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
