//! `nodetool ring`: the layout of 0.6, which shows those that own a token.

use super::client::Client;
use super::info::load;
use super::{NodetoolError, Output};
use crate::admin::ring_report::{Ring, RingEndpoint, RingState};
use std::fmt::Write;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let ring: Ring = client.get("/api/v1/ring")?;
    Ok(Output::new(&ring, render(&ring)))
}

fn render(ring: &Ring) -> String {
    let owns_token =
        |it: &&RingEndpoint| matches!(it.state, RingState::Normal | RingState::Leaving);
    let members: Vec<&RingEndpoint> = ring.endpoints.iter().filter(owns_token).collect();
    let mut text = String::new();
    let mut line = |cells: [&str; 5], art: &str| {
        let [address, status, load, owns, token] = cells;
        // The longest addresses move the rest by one or two places.
        let _ = writeln!(text, "{address:<13} {status:<11}{load:<14}{owns:<8}{token:<43}{art}");
    };
    line(["Address", "Status", "Load", "Owns", "Range"], "Ring");
    let token = |endpoint: &RingEndpoint| endpoint.token.clone().unwrap_or_default();
    if let [_, .., last] = members[..] {
        // Each line has the right end of a range; here is the left end of the first.
        line(["", "", "", "", &token(last)], "");
    }
    for (place, endpoint) in members.iter().enumerate() {
        let status = format!("{:?}", endpoint.status);
        let load = endpoint.load_bytes.map_or_else(|| "?".to_owned(), load);
        let owns = endpoint.owns.map_or_else(|| "?".to_owned(), |it| format!("{:.2}%", it * 100.0));
        let cells = [&*endpoint.address.to_string(), &status, &load, &owns, &token(endpoint)];
        line(cells, art(place, members.len()));
    }
    let is_local = |it: &&RingEndpoint| it.address == ring.local;
    if let Some(local) = ring.endpoints.iter().find(is_local)
        && local.state == RingState::Outside
    {
        let status = format!("{:?}", local.status);
        let load = local.load_bytes.map_or_else(|| "?".to_owned(), load);
        line([&*local.address.to_string(), &status, &load, "0.00%", "(no place on the ring)"], "");
    }
    text
}

/// What stands for the ring behind the line of a place.
fn art(place: usize, count: usize) -> &'static str {
    match place {
        0 => "|<--|",
        _ if place + 1 == count => "|-->|",
        _ if count <= 4 => "|   |",
        _ if place.is_multiple_of(2) => "v   |",
        _ => "|   ^",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::ring_report::Status;
    use std::net::IpAddr;

    const TOKENS: [&str; 3] =
        ["0", "56713727820156410577229101238628035242", "113427455640312821154458202477256070484"];

    fn endpoint(last: u8, state: RingState, token: &str) -> RingEndpoint {
        RingEndpoint {
            address: IpAddr::from([127, 0, 0, last]),
            status: Status::Up,
            state,
            load_bytes: Some(485),
            token: Some(token.to_owned()),
            owns: Some(1.0 / 3.0),
            generation: Some(1),
            phi: None,
            data_center: None,
            rack: None,
            hints: 0,
            hint_bytes: 0,
        }
    }

    fn ring(endpoints: Vec<RingEndpoint>) -> Ring {
        let local = IpAddr::from([127, 0, 0, 11]);
        Ring { local, partitioner: "RandomPartitioner".to_owned(), endpoints, removed: vec![] }
    }

    #[test]
    fn the_ring_looks_as_of_old() {
        let mut endpoints: Vec<RingEndpoint> = (11..)
            .zip(TOKENS)
            .map(|(last, token)| endpoint(last, RingState::Normal, token))
            .collect();
        endpoints[0].load_bytes = Some(470);
        endpoints[1].load_bytes = None;
        endpoints[2].status = Status::Down;
        // What has no range was not shown.
        endpoints.push(endpoint(14, RingState::Joining, "7"));
        endpoints.push(endpoint(15, RingState::Outside, ""));
        let lines = [
            ("Address       Status     Load          Owns    ", "Range", "Ring"),
            ("                                               ", TOKENS[2], ""),
            ("127.0.0.11    Up         470 bytes     33.33%  ", TOKENS[0], "|<--|"),
            ("127.0.0.12    Up         ?             33.33%  ", TOKENS[1], "|   |"),
            ("127.0.0.13    Down       485 bytes     33.33%  ", TOKENS[2], "|-->|"),
        ];
        let line = |(head, range, art): &(&str, &str, &str)| format!("{head}{range:<43}{art}\n");
        let expected: String = lines.iter().map(line).collect();
        assert_eq!(render(&ring(endpoints)), expected);
    }

    #[test]
    fn a_share_that_depends_on_the_data_is_not_told() {
        let mut alone = endpoint(11, RingState::Normal, "7");
        alone.owns = None;
        let text = render(&ring(vec![alone]));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains(" ?       7 ") && text.ends_with("|<--|\n"), "{text}");
    }

    #[test]
    fn a_node_that_lost_its_place_shows_that() {
        let endpoints =
            [(12, RingState::Normal), (11, RingState::Outside), (13, RingState::Outside)];
        let endpoints = endpoints.map(|(last, state)| endpoint(last, state, "7"));
        let text = render(&ring(endpoints.into()));
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with("127.0.0.11    Up ") && last.contains("(no place on the ring)"));
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn the_art_turns_on_a_large_ring() {
        let arts: Vec<&str> = (0..5).map(|place| art(place, 5)).collect();
        assert_eq!(arts, ["|<--|", "|   ^", "v   |", "|   ^", "|-->|"]);
    }
}
