//! Which endpoints are near each other.

use std::net::IpAddr;

/// How racks and data centres are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Snitch {
    /// `EndPointSnitch`: the second octet of the address is the data centre, the third the rack.
    /// The two are independent of each other: nodes of two data centres may share a rack.
    #[default]
    EndPoint,
}

impl Snitch {
    /// The snitch of this full class name; 0.6 takes no short ones here.
    pub fn from_class_name(class: &str) -> Option<Self> {
        (class == Self::EndPoint.class_name()).then_some(Self::EndPoint)
    }

    /// The full class name.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::EndPoint => "org.apache.cassandra.locator.EndPointSnitch",
        }
    }

    /// Whether both are in one rack.
    pub fn same_rack(self, a: IpAddr, b: IpAddr) -> bool {
        match self {
            Self::EndPoint => places(a).1 == places(b).1,
        }
    }

    /// Whether both are in one data centre.
    pub fn same_data_center(self, a: IpAddr, b: IpAddr) -> bool {
        match self {
            Self::EndPoint => places(a).0 == places(b).0,
        }
    }

    /// Sorts endpoints by their distance from `local`: itself, its rack, its data centre, the rest.
    /// Endpoints of equal distance keep their order.
    pub fn sort_by_proximity(self, local: IpAddr, endpoints: &mut [IpAddr]) {
        endpoints.sort_by_key(|&endpoint| {
            (
                endpoint != local,
                !self.same_rack(local, endpoint),
                !self.same_data_center(local, endpoint),
            )
        });
    }
}

/// The second and the third byte of the address: data centre and rack.
fn places(endpoint: IpAddr) -> (u8, u8) {
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

    #[test]
    fn near_endpoints_come_first() {
        let address = |b, c, d| IpAddr::from([10, b, c, d]);
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
    fn only_the_full_class_name_is_known() {
        let snitch = Snitch::EndPoint;
        assert_eq!(Snitch::from_class_name(snitch.class_name()), Some(snitch));
        assert_eq!(Snitch::from_class_name("EndPointSnitch"), None);
    }
}
