//! File names of nodes: `%r` stands for the number of the node; a name without it is a file that all nodes see.

use std::path::{Path, PathBuf};

use crate::Error;

/// What stands for the number of the node.
pub const MARK: &str = "%r";

/// Whether each node has a file of its own under this name.
pub fn is_own(path: &Path) -> bool {
    path.to_string_lossy().contains(MARK)
}

/// The name of a node's file. A name that is not text has no mark and stays as it is.
pub fn of_node(path: &Path, node: usize) -> PathBuf {
    match path.to_str() {
        Some(text) if text.contains(MARK) => text.replace(MARK, &node.to_string()).into(),
        _ => path.to_owned(),
    }
}

/// Whether all inputs are files of the nodes' own, or all are files that all nodes see.
pub(super) fn all_own(inputs: &[PathBuf]) -> Result<bool, Error> {
    let own = inputs.iter().filter(|path| is_own(path)).count();
    if own != 0 && own != inputs.len() {
        return Err(Error::Usage(format!(
            "some inputs have {MARK} in their name and some have not; hint: either each node has files of its own, or all \
             see all files"
        )));
    }
    Ok(own > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_number_of_the_node() {
        assert_eq!(of_node(Path::new("/d%r/in.%r"), 12), Path::new("/d12/in.12"));
        assert_eq!(of_node(Path::new("in"), 12), Path::new("in"));
        assert!(is_own(Path::new("d%r/in")) && !is_own(Path::new("in%")));
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert!(all_own(&paths(&["a%r", "b%r"])).unwrap() && !all_own(&paths(&["a"])).unwrap());
        assert!(all_own(&paths(&["a", "b%r"])).is_err());
    }
}
