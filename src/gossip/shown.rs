//! Texts of other nodes in log lines.

use std::fmt;

/// Longest text of another node that a log line shows, in characters.
const SHOWN: usize = 200;

/// A text of another node as a log line shows it: without line breaks, and not too long.
pub(super) struct Shown<'a>(pub(super) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(SHOWN) {
            let shown = if character.is_control() { '?' } else { character };
            write!(f, "{shown}")?;
        }
        if characters.next().is_some() { f.write_str("...") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_lines_are_not_broken() {
        assert_eq!(Shown(&"x".repeat(300)).to_string().len(), SHOWN + 3);
        assert_eq!(Shown("Other\nCluster").to_string(), "Other?Cluster");
    }
}
