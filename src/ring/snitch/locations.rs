//! Data centres and racks that files name: by address, or by octets of addresses.

use super::octets;
use crate::base::lock::{RwLock, rank};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The key of the line for addresses that have none.
const DEFAULT_KEY: &str = "default";

/// Unknown data centre and rack, named as in 0.6.
const UNKNOWN: &str = "default";

/// Place of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The name of its data centre.
    pub data_center: String,
    /// The name of its rack, unique within the data centre.
    pub rack: String,
}

/// The content of a rack file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RackFile {
    locations: BTreeMap<IpAddr, Location>,
    /// Location of addresses that are not listed.
    default: Location,
    has_default: bool,
    ignored: Vec<String>,
}

impl Location {
    /// A location of these names.
    pub fn new(data_center: impl Into<String>, rack: impl Into<String>) -> Self {
        Self { data_center: data_center.into(), rack: rack.into() }
    }

    /// The location of endpoints that a file does not name.
    pub fn unknown() -> Self {
        Self::new(UNKNOWN, UNKNOWN)
    }

    /// Parses `<data centre>:<rack>`. Other forms are unknown; text after a second colon is
    /// ignored.
    fn parse(text: &str) -> Self {
        let mut parts = text.split(':').map(str::trim).take_while(|part| !part.is_empty());
        match (parts.next(), parts.next()) {
            (Some(data_center), Some(rack)) => Self::new(data_center, rack),
            _ => Self::unknown(),
        }
    }
}

impl RackFile {
    /// Parses the lines of a file, keys to values. A key is an address, alone or with a port, or
    /// the word `default`. Other keys are [ignored](RackFile::ignored).
    ///
    /// 0.6 looks host names up as well. The placement of data must not depend on a name server.
    pub fn parse(lines: &BTreeMap<String, String>) -> Self {
        let mut file = Self {
            locations: BTreeMap::new(),
            default: Location::unknown(),
            has_default: false,
            ignored: Vec::new(),
        };
        for (key, value) in lines {
            let location = Location::parse(value);
            if key == DEFAULT_KEY {
                file.default = location;
                file.has_default = true;
            } else if let Some(address) = address(key) {
                file.locations.insert(address, location);
            } else {
                file.ignored.push(key.clone());
            }
        }
        file
    }

    /// The location of an address: its line, the default line, or a data centre of the name
    /// `default` where 0.6 fails.
    pub fn locate(&self, endpoint: IpAddr) -> &Location {
        self.locations.get(&endpoint).unwrap_or(&self.default)
    }

    /// The listed addresses in order, each with its place.
    pub fn locations(&self) -> impl Iterator<Item = (IpAddr, &Location)> {
        self.locations.iter().map(|(&address, location)| (address, location))
    }

    /// The names of the data centres, including that of the default line.
    pub fn data_centers(&self) -> BTreeSet<&str> {
        let default = self.has_default.then_some(&self.default);
        let all = self.locations.values().chain(default);
        all.map(|location| location.data_center.as_str()).collect()
    }

    /// Keys that are not addresses.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }
}

/// The address in `10.0.0.1`, `10.0.0.1:7000` or, as Java prints addresses, `/10.0.0.1`.
fn address(key: &str) -> Option<IpAddr> {
    let key = key.trim().trim_start_matches('/');
    let with_port = || key.parse::<SocketAddr>().ok().map(|address| address.ip());
    key.parse().ok().or_else(with_port)
}

/// The present rack file, which may be replaced while it is read. The lock is held for copying or
/// swapping a pointer.
#[derive(Debug)]
pub struct Racks {
    current: RwLock<rank::State, Option<Arc<RackFile>>>,
}

impl Racks {
    /// Starts with this file; without one, the octets of addresses count.
    pub fn new(file: Option<RackFile>) -> Self {
        Self { current: RwLock::new(file.map(Arc::new)) }
    }

    /// The present file.
    pub fn current(&self) -> Option<Arc<RackFile>> {
        self.current.read().clone()
    }

    /// Replaces the file. Returns whether it differs from the one before.
    pub fn replace(&self, file: RackFile) -> bool {
        let mut current = self.current.write();
        let differs = current.as_deref() != Some(&file);
        *current = Some(Arc::new(file));
        differs
    }

    /// The answer to the operation `displayConfiguration` of 0.6: a line for each listed address,
    /// in Java's form of addresses.
    pub fn display(&self) -> String {
        let mut text = "Current rack configuration\n=================\n".to_owned();
        for (address, location) in self.current().iter().flat_map(|file| file.locations()) {
            let _ = writeln!(text, "/{address}={}:{}", location.data_center, location.rack);
        }
        text
    }
}

/// Data centres and racks of second and third octets, as `DC-Config.xml` names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataCenterMap {
    locations: BTreeMap<(u8, u8), Location>,
    /// Location of other octets.
    unknown: Location,
}

impl DataCenterMap {
    /// A map from second and third octets. The first of equal octets counts.
    pub fn new(locations: impl IntoIterator<Item = ((u8, u8), Location)>) -> Self {
        let mut map = Self { locations: BTreeMap::new(), unknown: Location::unknown() };
        for (octets, location) in locations {
            map.locations.entry(octets).or_insert(location);
        }
        map
    }

    /// The location of an address. Those without one are together in a data centre of their own;
    /// 0.6 fails.
    pub fn locate(&self, endpoint: IpAddr) -> &Location {
        self.locations.get(&octets(endpoint)).unwrap_or(&self.unknown)
    }

    /// The names of the data centres.
    pub fn data_centers(&self) -> BTreeSet<&str> {
        self.locations.values().map(|location| location.data_center.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[(&str, &str)]) -> RackFile {
        RackFile::parse(
            &lines.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
        )
    }

    #[test]
    fn lines_are_located_by_address() {
        let file = parse(&[
            ("10.0.0.1", "DC1:R1"),
            ("10.0.0.2:7000", "DC1:R2:R3"),
            ("/10.0.0.3", "DC2"),
            ("10.0.0.4", "DC2:"),
            ("::1", "DC3:R1"),
            ("[::2]:7000", "DC3:R2"),
            ("default", "DC9:R9"),
            ("node7.example.org", "DC1:R1"),
        ]);
        let located = |address: &str| {
            let location = file.locate(address.parse().unwrap());
            format!("{}:{}", location.data_center, location.rack)
        };
        for (address, expected) in [
            ("10.0.0.1", "DC1:R1"),
            ("10.0.0.2", "DC1:R2"),
            ("10.0.0.3", "default:default"),
            ("10.0.0.4", "default:default"),
            ("::1", "DC3:R1"),
            ("::2", "DC3:R2"),
            ("10.0.0.9", "DC9:R9"),
        ] {
            assert_eq!(located(address), expected, "{address}");
        }
        assert_eq!(file.ignored(), ["node7.example.org"]);
        assert!(file.data_centers().into_iter().eq(["DC1", "DC3", "DC9", "default"]));
    }

    #[test]
    fn without_a_default_line_others_are_unknown() {
        let file = parse(&[("10.0.0.1", "DC1:R1")]);
        assert_eq!(file.locate([10, 0, 0, 2].into()), &Location::unknown());
        assert!(file.data_centers().into_iter().eq(["DC1"]));
        assert_eq!(parse(&[("default", "x")]).locate([1, 1, 1, 1].into()), &Location::unknown());
    }

    fn file(location: &str) -> RackFile {
        let line = |key: &str| (key.to_owned(), location.to_owned());
        RackFile::parse(&BTreeMap::from(["10.0.0.10", "10.0.0.9", "default"].map(line)))
    }

    #[test]
    fn the_present_file_is_displayed() {
        let racks = Racks::new(None);
        let header = "Current rack configuration\n=================\n";
        assert_eq!(racks.display(), header);
        assert!(racks.replace(file("DC1:R1")));
        assert_eq!(racks.display(), format!("{header}/10.0.0.9=DC1:R1\n/10.0.0.10=DC1:R1\n"));
        assert!(!racks.replace(file("DC1:R1")));
        assert!(racks.replace(file("DC1:R2")));
    }
}
