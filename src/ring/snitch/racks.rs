//! The rack file that is in force.

use super::rack_file::RackFile;
use crate::base::lock::{RwLock, rank};
use std::fmt::Write;
use std::sync::Arc;

/// A rack file that may be replaced while others look at it. Lock: the pointer to the file, held
/// for copying or swapping it.
#[derive(Debug)]
pub struct Racks {
    current: RwLock<rank::State, Option<Arc<RackFile>>>,
}

impl Racks {
    /// With this file in force; without one, addresses speak for themselves.
    pub fn new(file: Option<RackFile>) -> Self {
        Self { current: RwLock::new(file.map(Arc::new)) }
    }

    /// The file in force.
    pub fn current(&self) -> Option<Arc<RackFile>> {
        self.current.read().clone()
    }

    /// Puts a file in force. Returns whether it says anything else than the one before.
    pub fn replace(&self, file: RackFile) -> bool {
        let mut current = self.current.write();
        let differs = current.as_deref() != Some(&file);
        *current = Some(Arc::new(file));
        differs
    }

    /// What the operation `displayConfiguration` of the original answers: a line for each listed
    /// address, written as Java writes addresses.
    pub fn display(&self) -> String {
        let mut text = "Current rack configuration\n=================\n".to_owned();
        for (address, location) in self.current().iter().flat_map(|file| file.locations()) {
            let _ = writeln!(text, "/{address}={}:{}", location.data_center, location.rack);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn file(location: &str) -> RackFile {
        let line = |key: &str| (key.to_owned(), location.to_owned());
        RackFile::parse(&BTreeMap::from(["10.0.0.10", "10.0.0.9", "default"].map(line)))
    }

    #[test]
    fn what_is_in_force_is_displayed() {
        let racks = Racks::new(None);
        let header = "Current rack configuration\n=================\n";
        assert_eq!(racks.display(), header);
        assert!(racks.replace(file("DC1:R1")));
        assert_eq!(racks.display(), format!("{header}/10.0.0.9=DC1:R1\n/10.0.0.10=DC1:R1\n"));
        assert!(!racks.replace(file("DC1:R1")));
        assert!(racks.replace(file("DC1:R2")));
    }
}
