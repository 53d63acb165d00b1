//! Requests that took long, as operators see them.

use super::Node;
use crate::server::calls::{STANDARD, plain_families};

#[test]
fn requests_that_took_long_are_told_with_their_place() {
    let node = Node::start(&plain_families());
    assert_eq!(node.told(&["slow"]), "Requests that took 500 ms or more:\n");
    node.told(&["setslowthreshold", "1"]);
    // Requests are timed by a coarse clock: one in some dozens sees it move.
    let kept = || node.json(&["slow"])["requests"][0].clone();
    for _ in 0..1000 {
        node.insert(STANDARD, 0..50);
        if !kept().is_null() {
            break;
        }
    }
    let slow = kept();
    assert_eq!(
        (slow["protocol"].as_str(), slow["call"].as_str()),
        (Some("thrift"), Some("insert"))
    );
    let subject = slow["subject"].as_str().unwrap();
    assert!(subject.starts_with("Keyspace1.Standard1 'row "), "{subject}");
    let told = node.told(&["slow"]);
    let line = told.lines().nth(1).unwrap();
    assert!(line.contains(" ms 127.0.0.1 thrift insert at "), "{told}");
    assert!(node.server.log().contains("slow: thrift insert at "));
    node.told(&["setslowthreshold", "0"]);
    assert!(node.told(&["slow"]).starts_with("No slow requests are kept"));
}
