//! `nodetool hints`: what the node keeps for others that were down or too slow. 0.6 had no such
//! command.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::ring_report::{HintState, HintTarget, Hints};
use crate::base::utc::UtcTime;
use std::fmt::Write;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let hints: Hints = client.get("/api/v1/hints")?;
    Ok(Output::new(&hints, render(&hints)))
}

fn render(hints: &Hints) -> String {
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
            let oldest =
                target.oldest_millis.map_or_else(|| "?".into(), |it| UtcTime(it).to_string());
            line([
                &target.address.to_string(),
                &target.hints.to_string(),
                &target.bytes.to_string(),
                &oldest,
                &state(target),
            ]);
        }
    }
    let count: u64 = hints.targets.iter().map(|target| target.hints).sum();
    let bytes: u64 = hints.targets.iter().map(|target| target.bytes).sum();
    let lost = hints.refused_full + hints.refused_no_space + hints.failed;
    let Hints { stored, read, expired, .. } = hints;
    let _ = writeln!(text, "waiting: {count} ({bytes} bytes) for {} nodes", hints.targets.len());
    let _ = writeln!(
        text,
        "since the start: {stored} stored, {lost} not stored, {read} handed out, {expired} too old"
    );
    text
}

fn state(target: &HintTarget) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

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
            stored: 40,
            refused_full: 1,
            failed: 2,
            read: 16,
            ..Hints::default()
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
        assert_eq!(render(&hints), expected + totals);
    }

    #[test]
    fn a_node_that_keeps_none_says_so() {
        let text = render(&Hints::default());
        assert_eq!(text, "hinted handoff is off (HintedHandoffEnabled)\n");
    }
}
