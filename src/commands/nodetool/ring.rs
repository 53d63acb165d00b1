//! The nodes of the ring as text: what `ring`, `status`, `describecluster`, `gossipinfo`, `hints`,
//! `streams` and `allowreturn` print.

use super::print::load;
use crate::admin::report::{StreamReport, Streams};
use crate::admin::ring_report::{
    AllowedReturn, ClusterDescription, ClusterStatus, GossipEndpoint, HintState, HintTarget, Hints,
    NodeStatus, Ring, RingEndpoint, RingState, Software, Status,
};
use crate::base::utc::UtcTime;
use crate::replica::HintStats;
use std::fmt::Write;
use std::net::IpAddr;

/// The layout of 0.6, which shows those that own a token.
pub(super) fn render_ring(ring: &Ring) -> String {
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
        let (load, owns) = (known(endpoint.load_bytes, load), known(endpoint.owns, percent));
        let cells = [&*endpoint.address.to_string(), &status, &load, &owns, &token(endpoint)];
        line(cells, art(place, members.len()));
    }
    let is_local = |it: &&RingEndpoint| it.address == ring.local;
    if let Some(local) = ring.endpoints.iter().find(is_local)
        && local.state == RingState::Outside
    {
        let status = format!("{:?}", local.status);
        let load = known(local.load_bytes, load);
        line([&*local.address.to_string(), &status, &load, "0.00%", "(no place on the ring)"], "");
    }
    text
}

/// A value as text, if it is known.
fn known<T>(value: Option<T>, show: fn(T) -> String) -> String {
    value.map_or_else(|| "?".to_owned(), show)
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

fn time(millis: u64) -> String {
    UtcTime(millis).to_string()
}

/// Picture of the ring after the line of a place.
fn art(place: usize, count: usize) -> &'static str {
    match place {
        0 => "|<--|",
        _ if place + 1 == count => "|-->|",
        _ if count <= 4 => "|   |",
        _ if place.is_multiple_of(2) => "v   |",
        _ => "|   ^",
    }
}

/// All nodes at a glance, with an exit code for scripts.
pub(super) fn render_status(status: &ClusterStatus) -> String {
    let mut text = String::new();
    let mut line = |cells: [&str; 8]| {
        let [address, status, state, load, owns, since, version, token] = cells;
        let _ = writeln!(
            text,
            "{address:<15} {status:<7}{state:<9}{load:<14}{owns:<9}{since:<26}{version:<18}{token}"
        );
    };
    line(["Address", "Status", "State", "Load", "Owns", "Since", "Version", "Token"]);
    for node in &status.nodes {
        line([
            &node.address.to_string(),
            &format!("{:?}", node.status),
            &format!("{:?}", node.state),
            &known(node.load_bytes, load),
            &known(node.owns, percent),
            &known(node.since_millis, time),
            &version(node),
            node.token.as_deref().unwrap_or("-"),
        ]);
    }
    for trouble in &status.troubles {
        let _ = writeln!(text, "{}: {trouble}", status.local);
    }
    text.push_str(&summary(status));
    text
}

fn version(node: &NodeStatus) -> String {
    match &node.software {
        Some(Software::Alexandra(version)) => format!("Alexandra {version}").trim_end().to_owned(),
        Some(Software::Original) => "original".to_owned(),
        None => "?".to_owned(),
    }
}

fn summary(ClusterStatus { nodes, local, troubles, .. }: &ClusterStatus) -> String {
    let up = nodes.iter().filter(|node| node.status == Status::Up).count();
    let down = nodes.len() - up;
    let mut to_look_at: Vec<String> = nodes
        .iter()
        .filter(|node| !node.healthy)
        .map(|node| format!("{} ({:?}, {:?})", node.address, node.status, node.state))
        .collect();
    if !troubles.is_empty() && nodes.iter().all(|node| node.healthy || node.address != *local) {
        to_look_at.push(format!("{local} (see above)"));
    }
    let rest = if to_look_at.is_empty() {
        "all is well".to_owned()
    } else {
        format!("look at {}", to_look_at.join(", "))
    };
    format!("{} nodes, {up} up, {down} down: {rest}\n", nodes.len())
}

/// Whether the nodes agree on what they have to agree on.
pub(super) fn render_cluster(description: &ClusterDescription) -> String {
    let ClusterDescription { cluster_name, partitioner, snitches, schemas, .. } = description;
    let mut text = format!("Cluster: {cluster_name}\n");
    let _ = writeln!(text, "Partitioner: {partitioner}");
    let _ = writeln!(text, "Snitch: {}", snitches.join(", "));
    text.push_str("Schema and settings:\n");
    let mut group = |name: &str, addresses: &[IpAddr]| {
        if !addresses.is_empty() {
            let _ = writeln!(text, "\t{name}: [{}]", list(addresses));
        }
    };
    for schema in schemas {
        group(&schema.fingerprint, &schema.addresses);
    }
    group("unknown", &description.unknown);
    group("unreachable", &description.unreachable);
    if description.agree {
        text.push_str("All live nodes that tell agree\n");
    } else {
        let _ = writeln!(
            text,
            "They do not agree: look at partitioner, keyspaces, column families and GCGraceSeconds \
             in the storage-conf.xml of {}",
            list(&description.look_at)
        );
    }
    text
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Reports of the nodes about themselves.
pub(super) fn render_gossip(endpoints: &[GossipEndpoint]) -> String {
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

/// Hints that the node keeps for others that were down or too slow.
pub(super) fn render_hints(hints: &Hints) -> String {
    if !hints.enabled {
        return "hinted handoff is off (HintedHandoffEnabled)\n".to_owned();
    }
    let mut text = String::new();
    if !hints.targets.is_empty() {
        let mut line = |cells: [&str; 5]| {
            let [target, count, bytes, oldest, state] = cells;
            let _ = writeln!(text, "{target:<15} {count:>12} {bytes:>15}  {oldest:<26}{state}");
        };
        line(["Address", "Hints", "Bytes", "Oldest", "State"]);
        for target in &hints.targets {
            line([
                &target.address.to_string(),
                &target.hints.to_string(),
                &target.bytes.to_string(),
                &known(target.oldest_millis, time),
                &hint_state(target),
            ]);
        }
    }
    let count: u64 = hints.targets.iter().map(|target| target.hints).sum();
    let bytes: u64 = hints.targets.iter().map(|target| target.bytes).sum();
    let HintStats { stored, read, expired, .. } = hints.stats;
    let lost = hints.stats.refused_full + hints.stats.refused_no_space + hints.stats.failed;
    let _ = writeln!(text, "waiting: {count} ({bytes} bytes) for {} nodes", hints.targets.len());
    let _ = writeln!(
        text,
        "since the start: {stored} stored, {lost} not stored, {read} handed out, {expired} too old"
    );
    text
}

fn hint_state(target: &HintTarget) -> String {
    let HintTarget { address, recipient, .. } = target;
    let mut text = match (target.state, target.put_off_seconds) {
        (HintState::Delivering, _) => "being delivered".to_owned(),
        (HintState::Due, _) => "due".to_owned(),
        (HintState::PutOff, Some(seconds)) => format!("put off for {seconds} s"),
        (HintState::PutOff, None) => "put off".to_owned(),
        (HintState::Down, _) => "down".to_owned(),
    };
    if address != recipient {
        let _ = write!(text, ", {recipient} gets them");
    }
    text
}

/// The lines of 0.6 but for those of files: data move as pages of ranges, and the sender does not
/// know how many more there will be.
pub(super) fn render_streams(streams: &Streams, host: Option<IpAddr>) -> String {
    let mut text = format!("Mode: {}\n", streams.mode);
    direction(&mut text, &streams.sending, host, ("sending", "Streaming to", "to"), |it| {
        it.family.to_string()
    });
    direction(&mut text, &streams.receiving, host, ("receiving", "Streaming from", "from"), |it| {
        format!("{}: {}", it.family.keyspace, it.family.column_family)
    });
    text
}

fn direction(
    text: &mut String,
    streams: &[StreamReport],
    host: Option<IpAddr>,
    (verb, title, preposition): (&str, &str, &str),
    name: impl Fn(&StreamReport) -> String,
) {
    let is_meant = |it: &&StreamReport| host.is_none_or(|host| it.address == host);
    let mut last = None;
    for stream in streams.iter().filter(is_meant) {
        if last != Some(stream.address) {
            let _ = writeln!(text, "{title}: /{}", stream.address);
        }
        last = Some(stream.address);
        let _ = writeln!(text, "   {} {}/?", name(stream), stream.bytes);
    }
    match (last, host) {
        (Some(_), _) => {}
        (None, Some(host)) if !streams.is_empty() => {
            let _ = writeln!(text, " Nothing streaming {preposition} /{host}");
        }
        (None, _) => {
            let _ = writeln!(text, "Not {verb} any streams.");
        }
    }
}

/// That of 0.6 took back every node that was removed, so it had no such command.
pub(super) fn render_return(AllowedReturn { address, returned }: &AllowedReturn) -> String {
    let what = if *returned {
        "is in the ring again"
    } else {
        "is taken back into the ring when it has been started anew"
    };
    format!("{address} {what}. That concerns this node: allow it at every other one as well\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::report::Family;
    use crate::admin::ring_report::{GossipState, SchemaGroup};

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
        assert_eq!(render_ring(&ring(endpoints)), expected);
    }

    #[test]
    fn a_share_that_depends_on_the_data_is_not_told() {
        let mut alone = endpoint(11, RingState::Normal, "7");
        alone.owns = None;
        let text = render_ring(&ring(vec![alone]));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains(" ?       7 ") && text.ends_with("|<--|\n"), "{text}");
    }

    #[test]
    fn a_node_that_lost_its_place_shows_that() {
        let endpoints =
            [(12, RingState::Normal), (11, RingState::Outside), (13, RingState::Outside)];
        let endpoints = endpoints.map(|(last, state)| endpoint(last, state, "7"));
        let text = render_ring(&ring(endpoints.into()));
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with("127.0.0.11    Up ") && last.contains("(no place on the ring)"));
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn the_art_turns_on_a_large_ring() {
        let arts: Vec<&str> = (0..5).map(|place| art(place, 5)).collect();
        assert_eq!(arts, ["|<--|", "|   ^", "v   |", "|   ^", "|-->|"]);
    }

    fn node(last: u8, status: Status, state: RingState) -> NodeStatus {
        NodeStatus {
            address: IpAddr::from([10, 0, 0, last]),
            status,
            state,
            healthy: status == Status::Up && state == RingState::Normal,
            since_millis: Some(1_290_241_963_120),
            load_bytes: Some(1536),
            owns: Some(0.5),
            token: Some("7".into()),
            software: Some(Software::Alexandra("1.2.3".into())),
        }
    }

    fn status(nodes: Vec<NodeStatus>) -> ClusterStatus {
        let healthy = nodes.iter().all(|node| node.healthy);
        let local = IpAddr::from([10, 0, 0, 1]);
        ClusterStatus { cluster_name: "Test".into(), local, healthy, troubles: Vec::new(), nodes }
    }

    #[test]
    fn each_node_is_a_line_and_the_last_one_sums_up() {
        let mut silent = node(2, Status::Down, RingState::Leaving);
        (silent.load_bytes, silent.owns, silent.since_millis) = (None, None, None);
        (silent.token, silent.software) = (None, None);
        let mut original = node(3, Status::Up, RingState::Normal);
        original.software = Some(Software::Original);
        let text =
            render_status(&status(vec![node(1, Status::Up, RingState::Normal), silent, original]));
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let since = "2010-11-20T08:32:43.120Z";
        let first = ["10.0.0.1", "Up", "Normal", "1.5", "KB", "50.00%", since, "Alexandra"];
        assert_eq!(lines[1][..8], first);
        assert_eq!(lines[1][8..], ["1.2.3", "7"]);
        assert_eq!(lines[2], ["10.0.0.2", "Down", "Leaving", "?", "?", "?", "?", "-"]);
        assert_eq!(lines[3][7..], ["original", "7"]);
        let last = "3 nodes, 2 up, 1 down: look at 10.0.0.2 (Down, Leaving)";
        assert_eq!(text.lines().last(), Some(last));
    }

    #[test]
    fn a_cluster_without_trouble_is_said_to_be_well() {
        let text = render_status(&status(vec![node(1, Status::Up, RingState::Normal)]));
        assert_eq!(text.lines().last(), Some("1 nodes, 1 up, 0 down: all is well"));
    }

    #[test]
    fn nodes_are_grouped_and_those_that_differ_named() {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let group = |fingerprint: &str, last: &[u8]| SchemaGroup {
            fingerprint: fingerprint.to_owned(),
            addresses: last.iter().map(|last| address(*last)).collect(),
        };
        let mut description = ClusterDescription {
            cluster_name: "Test".into(),
            partitioner: "P".into(),
            snitches: vec!["S".into()],
            agree: false,
            schemas: vec![group("1f", &[1, 2]), group("2e", &[3])],
            unknown: vec![address(4)],
            unreachable: vec![],
            look_at: vec![address(3)],
        };
        let head = "Cluster: Test\nPartitioner: P\nSnitch: S\nSchema and settings:\n\
                    \t1f: [10.0.0.1, 10.0.0.2]\n";
        let text = render_cluster(&description);
        assert!(text.starts_with(&format!("{head}\t2e: [10.0.0.3]\n\tunknown: [10.0.0.4]\n")));
        assert!(text.ends_with(" in the storage-conf.xml of 10.0.0.3\n"), "{text}");
        description.schemas.truncate(1);
        (description.agree, description.unknown) = (true, vec![]);
        assert_eq!(render_cluster(&description), format!("{head}All live nodes that tell agree\n"));
    }

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
        assert_eq!(render_gossip(&[endpoint]), expected);
    }

    fn target(last: u8, state: HintState) -> HintTarget {
        let address = IpAddr::from([10, 0, 0, last]);
        HintTarget {
            address,
            hints: 12,
            bytes: 3456,
            oldest_millis: Some(1_290_241_963_120),
            recipient: address,
            state,
            put_off_seconds: None,
        }
    }

    #[test]
    fn each_target_is_a_line_and_totals_follow() {
        let mut inherited = target(3, HintState::PutOff);
        inherited.recipient = IpAddr::from([10, 0, 0, 4]);
        inherited.put_off_seconds = Some(30);
        inherited.oldest_millis = None;
        let hints = Hints {
            enabled: true,
            targets: vec![target(2, HintState::Down), inherited],
            stats: HintStats {
                stored: 40,
                refused_full: 1,
                failed: 2,
                read: 16,
                ..HintStats::default()
            },
        };
        let lines = [
            ("Address", "Hints", "Bytes", "Oldest", "State"),
            ("10.0.0.2", "12", "3456", "2010-11-20T08:32:43.120Z", "down"),
            ("10.0.0.3", "12", "3456", "?", "put off for 30 s, 10.0.0.4 gets them"),
        ];
        let line = |(address, hints, bytes, oldest, state): &(&str, &str, &str, &str, &str)| {
            format!("{address:<15} {hints:>12} {bytes:>15}  {oldest:<26}{state}\n")
        };
        let expected: String = lines.iter().map(line).collect();
        let totals = "waiting: 24 (6912 bytes) for 2 nodes\n\
                      since the start: 40 stored, 3 not stored, 16 handed out, 0 too old\n";
        assert_eq!(render_hints(&hints), expected + totals);
    }

    #[test]
    fn a_node_that_keeps_none_says_so() {
        let text = render_hints(&Hints::default());
        assert_eq!(text, "hinted handoff is off (HintedHandoffEnabled)\n");
    }

    #[test]
    fn lines_are_those_of_0_6() {
        let stream = |host, bytes| StreamReport {
            address: [10, 0, 0, host].into(),
            family: Family {
                keyspace: "Keyspace1".to_owned(),
                column_family: "Standard1".to_owned(),
            },
            bytes,
        };
        let mut streams =
            Streams { mode: "Normal".to_owned(), sending: Vec::new(), receiving: Vec::new() };
        assert_eq!(
            render_streams(&streams, None),
            "Mode: Normal\nNot sending any streams.\nNot receiving any streams.\n"
        );
        streams.sending = vec![stream(2, 700)];
        streams.receiving = vec![stream(3, 70), stream(3, 7)];
        assert_eq!(
            render_streams(&streams, None),
            "Mode: Normal\n\
             Streaming to: /10.0.0.2\n   Keyspace1.Standard1 700/?\n\
             Streaming from: /10.0.0.3\n   Keyspace1: Standard1 70/?\n   Keyspace1: Standard1 7/?\n"
        );
        assert_eq!(
            render_streams(&streams, Some([10, 0, 0, 2].into())),
            "Mode: Normal\nStreaming to: /10.0.0.2\n   Keyspace1.Standard1 700/?\n \
             Nothing streaming from /10.0.0.2\n"
        );
    }

    #[test]
    fn what_is_left_to_do_is_told() {
        let address = IpAddr::from([10, 0, 0, 2]);
        let text = |returned| render_return(&AllowedReturn { address, returned });
        assert!(text(true).starts_with("10.0.0.2 is in the ring again."), "{}", text(true));
        assert!(text(false).contains(" when it has been started anew."), "{}", text(false));
        assert!(text(false).ends_with(" at every other one as well\n"), "{}", text(false));
    }
}
