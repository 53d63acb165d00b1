//! `nodetool gossipinfo`: what nodes say of themselves. 0.6 had no such command.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::ring_report::GossipEndpoint;
use std::fmt::Write;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let endpoints: Vec<GossipEndpoint> = client.get("/api/v1/gossip")?;
    Ok(Output::new(&endpoints, render(&endpoints)))
}

fn render(endpoints: &[GossipEndpoint]) -> String {
    let mut text = String::new();
    for endpoint in endpoints {
        let GossipEndpoint { address, status, phi, generation, heartbeat, states } = endpoint;
        let _ = writeln!(text, "/{address}");
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "  {name}:{value}");
        };
        line("status", &format!("{status:?}"));
        if let Some(phi) = phi {
            line("phi", &format!("{phi:.2}"));
        }
        line("generation", &generation.to_string());
        line("heartbeat", &heartbeat.to_string());
        for (name, state) in states {
            line(name, &state.value);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::ring_report::{GossipState, Status};
    use std::net::IpAddr;

    #[test]
    fn each_endpoint_has_its_states_below_it() {
        let state = |value: &str| GossipState { value: value.to_owned(), version: 1 };
        let endpoint = GossipEndpoint {
            address: IpAddr::from([10, 0, 0, 7]),
            status: Status::Down,
            phi: Some(8.257),
            generation: 1_795_146_411,
            heartbeat: 12,
            states: [("MOVE", "NORMAL,1"), ("LOAD-INFORMATION", "470.0")]
                .map(|(name, value)| (name.to_owned(), state(value)))
                .into(),
        };
        let expected = "/10.0.0.7\n  status:Down\n  phi:8.26\n  generation:1795146411\n  \
                        heartbeat:12\n  LOAD-INFORMATION:470.0\n  MOVE:NORMAL,1\n";
        assert_eq!(render(&[endpoint]), expected);
    }
}
