//! `DC-Config.xml`: which addresses are in which data centre and rack, and how many replicas each
//! data centre gets. The file of 0.5's `DatacenterEndPointSnitch`.

use super::document::Value;
use super::error::{ConfigError, Place, Problem};
use super::xml::Element;
use crate::ring::{DataCenterMap, Location};
use std::collections::BTreeMap;

/// Where the original looks for the file.
pub const DEFAULT_FILE: &str = "/etc/cassandra/DC-Config.xml";

/// The data centres of a file, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datacenters(pub Vec<Datacenter>);

/// A data centre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datacenter {
    /// Its name.
    pub name: String,
    /// The second octet of its addresses (`ip2ndQuad`).
    pub second_octet: u8,
    /// Number of its replicas (`replicationFactor`).
    pub replication_factor: u32,
    /// Its racks.
    pub racks: Vec<Rack>,
}

/// A rack of a data centre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rack {
    /// Its name.
    pub name: String,
    /// The third octet of its addresses (`ip3rdQuad`).
    pub third_octet: u8,
}

impl Datacenters {
    /// Reads a file; `origin` names it in messages.
    pub fn parse(bytes: &[u8], origin: &str) -> Result<Self, ConfigError> {
        let root = Element::read(bytes, origin)?;
        let mut centers = Vec::new();
        for element in root.children_named("DataCenter") {
            let path = format!("/{}/DataCenter", root.name);
            let center = Place { origin, line: element.line, element: path };
            let mut racks = Vec::new();
            for rack in element.children_named("rack") {
                let path = format!("{}/rack", center.element);
                let place = Place { origin, line: rack.line, element: path };
                racks.push(Rack {
                    name: field(rack, &place, "name")?.text.to_owned(),
                    third_octet: octet(&field(rack, &place, "ip3rdQuad")?)?,
                });
            }
            let factor = field(element, &center, "replicationFactor")?;
            let out_of_bounds = |_| factor.refuse("must be at least 0");
            centers.push(Datacenter {
                name: field(element, &center, "name")?.text.to_owned(),
                second_octet: octet(&field(element, &center, "ip2ndQuad")?)?,
                replication_factor: u32::try_from(factor.integer()?).map_err(out_of_bounds)?,
                racks,
            });
        }
        Ok(Self(centers))
    }

    /// Which octets are which data centre and rack.
    pub fn map(&self) -> DataCenterMap {
        DataCenterMap::new(self.0.iter().flat_map(|center| {
            center.racks.iter().map(|rack| {
                let octets = (center.second_octet, rack.third_octet);
                (octets, Location::new(&center.name, &rack.name))
            })
        }))
    }

    /// Number of replicas of each data centre, by its name. Of several elements of one name,
    /// for several second octets, the last says it.
    pub fn replication_factors(&self) -> BTreeMap<String, usize> {
        let centers = self.0.iter();
        centers.map(|center| (center.name.clone(), center.replication_factor as usize)).collect()
    }
}

/// A value that must be there, as a child element or as an attribute.
fn field<'a>(
    element: &'a Element,
    place: &Place<'a>,
    name: &'static str,
) -> Result<Value<'a>, ConfigError> {
    let path = format!("{}/{name}", place.element);
    let child = element.children.iter().find(|child| child.name == name);
    let line = child.map_or(element.line, |child| child.line);
    let field = Place { origin: place.origin, line, element: path };
    let value = child.and_then(|child| Value::of_element(child, field.clone()));
    let value = value.or_else(|| Value::of_attribute(element, place, name));
    value.ok_or_else(|| field.refuse(Problem::missing()))
}

fn octet(value: &Value<'_>) -> Result<u8, ConfigError> {
    u8::try_from(value.integer()?).map_err(|_| value.refuse("must be from 0 to 255"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "<EndPoints>
        <DataCenter>
          <name>North</name> <ip2ndQuad>18</ip2ndQuad> <replicationFactor>2</replicationFactor>
          <rack> <name>R1</name> <ip3rdQuad>5</ip3rdQuad> </rack>
          <rack name='R2' ip3rdQuad='6'/>
        </DataCenter>
        <DataCenter name='South' ip2ndQuad='19' replicationFactor='1'>
          <rack> <name>R1</name> <ip3rdQuad>5</ip3rdQuad> </rack>
        </DataCenter>
      </EndPoints>";

    #[test]
    fn addresses_are_located_by_two_octets() {
        let centers = Datacenters::parse(SAMPLE.as_bytes(), "dc.xml").unwrap();
        let factors = [("North".to_owned(), 2), ("South".to_owned(), 1)];
        assert_eq!(centers.replication_factors(), BTreeMap::from(factors));
        let map = centers.map();
        for (address, center, rack) in [
            ("10.18.6.1", "North", "R2"),
            ("10.19.5.1", "South", "R1"),
            ("10.19.6.1", "default", "default"),
            ("10.20.5.1", "default", "default"),
        ] {
            let located = map.locate(address.parse().unwrap());
            assert_eq!(located, &Location::new(center, rack), "{address}");
        }
    }

    #[test]
    fn faults_name_their_line() {
        for (from, to, message) in [
            ("<ip2ndQuad>18", "<ip2ndQuad>256", "dc.xml:3: /EndPoints/DataCenter/ip2ndQuad: must"),
            ("<name>R1</name>", "", "dc.xml:4: /EndPoints/DataCenter/rack/name: the element is"),
            ("Factor='1'", "Factor='-1'", "dc.xml:7: /EndPoints/DataCenter/@replicationFactor: mu"),
            ("</EndPoints>", "", "dc.xml:1: <EndPoints> is never closed"),
        ] {
            let text = SAMPLE.replacen(from, to, 1);
            let error = Datacenters::parse(text.as_bytes(), "dc.xml").unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
