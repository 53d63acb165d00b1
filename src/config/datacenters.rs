//! `DC-Config.xml`: which addresses are in which data centre and rack, and how many replicas each
//! data centre gets. The file of 0.5's `DatacenterEndPointSnitch`.

use super::document::Value;
use super::error::{ConfigError, Place, Problem};
use super::xml::Element;
use crate::ring::{DataCenterMap, Location};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Path of the file in the original.
pub const DEFAULT_FILE: &str = "/etc/cassandra/DC-Config.xml";

/// The data centres of a file.
#[derive(Debug)]
pub struct Datacenters {
    /// Data centre and rack by the second and third octets of addresses (`ip2ndQuad`, `ip3rdQuad`).
    pub map: Arc<DataCenterMap>,
    /// Number of replicas of each data centre (`replicationFactor`), by its name. The last of
    /// several elements of one name counts.
    pub replication_factors: BTreeMap<String, usize>,
}

impl Datacenters {
    /// Reads a file; `origin` names it in messages.
    pub fn parse(bytes: &[u8], origin: &str) -> Result<Self, ConfigError> {
        let root = Element::read(bytes, origin)?;
        let (mut places, mut replication_factors) = (Vec::new(), BTreeMap::new());
        for element in root.children_named("DataCenter") {
            let path = format!("/{}/DataCenter", root.name);
            let center = Place { origin, line: element.line, element: path };
            let mut racks = Vec::new();
            for rack in element.children_named("rack") {
                let path = format!("{}/rack", center.element);
                let place = Place { origin, line: rack.line, element: path };
                let name = field(rack, &place, "name")?.text;
                racks.push((name, octet(&field(rack, &place, "ip3rdQuad")?)?));
            }
            let factor = field(element, &center, "replicationFactor")?;
            let name = field(element, &center, "name")?.text;
            let second = octet(&field(element, &center, "ip2ndQuad")?)?;
            let replicas = u32::try_from(factor.integer()?);
            let replicas = replicas.map_err(|_| factor.refuse("must be at least 0"))?;
            replication_factors.insert(name.to_owned(), replicas as usize);
            let place = |(rack, third)| ((second, third), Location::new(name, rack));
            places.extend(racks.into_iter().map(place));
        }
        Ok(Self { map: Arc::new(DataCenterMap::new(places)), replication_factors })
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
        assert_eq!(centers.replication_factors, BTreeMap::from(factors));
        for (address, center, rack) in [
            ("10.18.6.1", "North", "R2"),
            ("10.19.5.1", "South", "R1"),
            ("10.19.6.1", "default", "default"),
            ("10.20.5.1", "default", "default"),
        ] {
            let located = centers.map.locate(address.parse().unwrap());
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
