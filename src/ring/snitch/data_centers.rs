//! Data centres and racks that are named for the second and third octets of addresses.

use super::octets;
use super::rack_file::Location;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Names by octets, as `DC-Config.xml` gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataCenterMap {
    /// By second and third octet.
    locations: BTreeMap<(u8, u8), Location>,
    /// Of addresses with other octets.
    unknown: Location,
}

impl DataCenterMap {
    /// A map of second and third octets to names. Of equal octets the first count.
    pub fn new(locations: impl IntoIterator<Item = ((u8, u8), Location)>) -> Self {
        let mut map = Self { locations: BTreeMap::new(), unknown: Location::unknown() };
        for (octets, location) in locations {
            map.locations.entry(octets).or_insert(location);
        }
        map
    }

    /// Where an address is. Those that nothing is said of are together in a data centre of
    /// their own; the original fails when it meets one.
    pub fn locate(&self, endpoint: IpAddr) -> &Location {
        self.locations.get(&octets(endpoint)).unwrap_or(&self.unknown)
    }

    /// The names of the data centres.
    pub fn data_centers(&self) -> BTreeSet<&str> {
        self.locations.values().map(|location| location.data_center.as_str()).collect()
    }
}
