//! What `rack.properties` says: data centre and rack of each address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// The key of the line for addresses that have none.
const DEFAULT_KEY: &str = "default";

/// Data centre and rack of which nothing better is known, named as in the original.
const UNKNOWN: &str = "default";

/// Where an endpoint is.
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
    /// Of addresses that are not listed.
    default: Location,
    has_default: bool,
    ignored: Vec<String>,
}

impl Location {
    /// A location of these names.
    pub fn new(data_center: impl Into<String>, rack: impl Into<String>) -> Self {
        Self { data_center: data_center.into(), rack: rack.into() }
    }

    /// That of endpoints which nothing is said of.
    pub fn unknown() -> Self {
        Self::new(UNKNOWN, UNKNOWN)
    }

    /// From `<data centre>:<rack>`. What has not this form is unknown; whatever follows a second
    /// colon does not count.
    fn parse(text: &str) -> Self {
        let mut parts = text.split(':').map(str::trim).take_while(|part| !part.is_empty());
        match (parts.next(), parts.next()) {
            (Some(data_center), Some(rack)) => Self::new(data_center, rack),
            _ => Self::unknown(),
        }
    }
}

impl RackFile {
    /// From the lines of the file, keys to values. A key is an address, alone or with a port, or
    /// the word `default`. Other keys are [ignored](RackFile::ignored).
    ///
    /// The original looks host names up as well. What decides where data live should not change
    /// with an answer from elsewhere.
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

    /// Where an address is. One that is not listed is where the default line says. Without such
    /// a line it is in a data centre of the name `default`; the original fails then.
    pub fn locate(&self, endpoint: IpAddr) -> &Location {
        self.locations.get(&endpoint).unwrap_or(&self.default)
    }

    /// The listed addresses in order, each with its place.
    pub fn locations(&self) -> impl Iterator<Item = (IpAddr, &Location)> {
        self.locations.iter().map(|(&address, location)| (address, location))
    }

    /// The names of the data centres, also that of the default line.
    pub fn data_centers(&self) -> BTreeSet<&str> {
        let default = self.has_default.then_some(&self.default);
        let all = self.locations.values().chain(default);
        all.map(|location| location.data_center.as_str()).collect()
    }

    /// Keys that are no addresses.
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
}
