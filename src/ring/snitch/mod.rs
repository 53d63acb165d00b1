//! Proximity of endpoints.
//!
//! A keyspace is configured with a [`Snitch`]. Its data may change while the server runs, so code
//! that compares more than two endpoints takes a [`Topology`], which does not change.

mod locations;

pub use locations::{DataCenterMap, Location, RackFile, Racks};

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// Source of racks and data centres.
#[derive(Debug, Clone, Default)]
pub enum Snitch {
    /// `EndPointSnitch`: the second octet of the address is the data centre, the third the rack.
    /// The two are independent of each other: nodes of two data centres may share a rack.
    #[default]
    EndPoint,
    /// `PropertyFileEndPointSnitch`: a file names them for each address. As long as there is no
    /// file, the octets count.
    PropertyFile(Arc<Racks>),
    /// `DatacenterEndPointSnitch`: a file names them for second and third octets.
    Datacenter(Arc<DataCenterMap>),
}

/// The data of a snitch at one moment.
#[derive(Debug, Clone)]
pub enum Topology {
    /// The second octet is the data centre, the third the rack.
    Octets,
    /// By address.
    Addresses(Arc<RackFile>),
    /// By octets that have names.
    NamedOctets(Arc<DataCenterMap>),
}

impl Snitch {
    /// The present topology.
    pub fn topology(&self) -> Topology {
        match self {
            Self::EndPoint => Topology::Octets,
            Self::PropertyFile(racks) => {
                racks.current().map_or(Topology::Octets, Topology::Addresses)
            }
            Self::Datacenter(map) => Topology::NamedOctets(Arc::clone(map)),
        }
    }

    /// Sorts endpoints by their distance from `local`, see [`Topology::sort_by_proximity`].
    pub fn sort_by_proximity(&self, local: IpAddr, endpoints: &mut [IpAddr]) {
        self.topology().sort_by_proximity(local, endpoints);
    }
}

impl Topology {
    /// The name of the data centre of an endpoint: an octet as a decimal number, or what the file
    /// says. `default` if it says nothing.
    pub fn data_center(&self, endpoint: IpAddr) -> Cow<'_, str> {
        match self.location(endpoint) {
            Some(location) => Cow::Borrowed(&location.data_center),
            None => Cow::Owned(octets(endpoint).0.to_string()),
        }
    }

    /// The name of the rack of an endpoint, unique within its data centre only.
    pub fn rack(&self, endpoint: IpAddr) -> Cow<'_, str> {
        match self.location(endpoint) {
            Some(location) => Cow::Borrowed(&location.rack),
            None => Cow::Owned(octets(endpoint).1.to_string()),
        }
    }

    /// Whether both are in one data centre.
    pub fn same_data_center(&self, a: IpAddr, b: IpAddr) -> bool {
        match (self.location(a), self.location(b)) {
            (Some(a), Some(b)) => a.data_center == b.data_center,
            _ => octets(a).0 == octets(b).0,
        }
    }

    /// Whether both are in one rack. Where racks have names, those of two data centres are never
    /// the same.
    pub fn same_rack(&self, a: IpAddr, b: IpAddr) -> bool {
        match (self.location(a), self.location(b)) {
            (Some(a), Some(b)) => a == b,
            _ => octets(a).1 == octets(b).1,
        }
    }

    /// Sorts endpoints by their distance from `local`: itself, its rack, its data centre, the rest.
    /// Endpoints of equal distance keep their order.
    pub fn sort_by_proximity(&self, local: IpAddr, endpoints: &mut [IpAddr]) {
        endpoints.sort_by_key(|&endpoint| {
            (
                endpoint != local,
                !self.same_rack(local, endpoint),
                !self.same_data_center(local, endpoint),
            )
        });
    }

    /// The names of data centre and rack; `None` for all endpoints if there are octets only.
    fn location(&self, endpoint: IpAddr) -> Option<&Location> {
        match self {
            Self::Octets => None,
            Self::Addresses(file) => Some(file.locate(endpoint)),
            Self::NamedOctets(map) => Some(map.locate(endpoint)),
        }
    }
}

/// The second and the third byte of the address: data centre and rack.
fn octets(endpoint: IpAddr) -> (u8, u8) {
    match endpoint {
        IpAddr::V4(address) => {
            let [_, data_center, rack, _] = address.octets();
            (data_center, rack)
        }
        IpAddr::V6(address) => {
            let [_, data_center, rack, ..] = address.octets();
            (data_center, rack)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn address(b: u8, c: u8, d: u8) -> IpAddr {
        [10, b, c, d].into()
    }

    fn rack_file(lines: &[(&str, &str)]) -> RackFile {
        let lines: BTreeMap<_, _> =
            lines.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        RackFile::parse(&lines)
    }

    #[test]
    fn near_endpoints_come_first() {
        let local = address(1, 1, 1);
        let mut endpoints = [
            address(2, 2, 1),
            address(1, 2, 1),
            address(2, 1, 1),
            address(1, 2, 2),
            local,
            address(1, 1, 2),
        ];
        Snitch::EndPoint.sort_by_proximity(local, &mut endpoints);
        let expected = [
            local,
            address(1, 1, 2),
            address(2, 1, 1),
            address(1, 2, 1),
            address(1, 2, 2),
            address(2, 2, 1),
        ];
        assert_eq!(endpoints, expected);
    }

    #[test]
    fn a_file_decides_which_endpoints_are_near() {
        let racks = Arc::new(Racks::new(None));
        let snitch = Snitch::PropertyFile(Arc::clone(&racks));
        let [local, near, far, other] =
            [(1, 1, 1), (2, 2, 2), (1, 1, 3), (1, 1, 4)].map(|(b, c, d)| address(b, c, d));
        let sorted = || {
            let mut endpoints = [other, near, far, local];
            snitch.sort_by_proximity(local, &mut endpoints);
            endpoints
        };
        assert_eq!(sorted(), [local, other, far, near], "by octets, without a file");
        assert_eq!(snitch.topology().data_center(near), "2");
        racks.replace(rack_file(&[
            ("10.1.1.1", "DC1:R1"),
            ("10.2.2.2", "DC1:R1"),
            ("10.1.1.3", "DC1:R2"),
            ("10.1.1.4", "DC2:R1"),
        ]));
        assert_eq!(sorted(), [local, near, far, other]);
        let topology = snitch.topology();
        assert_eq!((topology.data_center(other), topology.rack(far)), ("DC2".into(), "R2".into()));
        assert!(!topology.same_rack(local, other), "racks of one name in two data centres");
        let unlisted = [address(7, 7, 7), address(8, 8, 8)];
        assert!(topology.same_rack(unlisted[0], unlisted[1]));
        assert_eq!(topology.data_center(unlisted[0]), "default");
    }

    #[test]
    fn octets_have_names_and_decimals() {
        let names = [((18, 5), ("North", "R1")), ((19, 5), ("South", "R1"))];
        let snitch = Snitch::Datacenter(Arc::new(DataCenterMap::new(
            names.map(|(octets, (center, rack))| (octets, Location::new(center, rack))),
        )));
        let topology = snitch.topology();
        assert_eq!(topology.data_center(address(18, 5, 1)), "North");
        assert_eq!(topology.rack(address(19, 5, 1)), "R1");
        assert_eq!(topology.rack(address(19, 6, 1)), "default");
        assert!(!topology.same_rack(address(18, 5, 1), address(19, 5, 1)));
        assert!(topology.same_rack(address(18, 5, 1), address(18, 5, 2)));
        let octets = Snitch::EndPoint.topology();
        assert_eq!(
            (octets.data_center(address(18, 5, 1)), octets.rack(address(18, 5, 1))),
            ("18".into(), "5".into())
        );
    }
}
