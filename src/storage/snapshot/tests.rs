use super::{BadTag, SnapshotName, Tag};

fn tag(text: &str) -> Tag {
    Tag::new(text).unwrap()
}

#[test]
fn names_are_parsed_as_they_are_shown() {
    for (text, millis, tag) in [
        ("1290000000123", 1_290_000_000_123, None),
        ("1290000000123-a", 1_290_000_000_123, Some(tag("a"))),
        ("7-compact-Authors", 7, Some(tag("compact-Authors"))),
        ("0-größer.2", 0, Some(tag("größer.2"))),
    ] {
        let name = SnapshotName { millis, tag };
        assert_eq!(name.to_string(), text);
        assert_eq!(SnapshotName::parse(text), Some(name));
    }
    for foreign in ["", "a", "-a", "1-", "01", "+1", "1-a.tmp", "99999999999999999999", "old-1"] {
        assert_eq!(SnapshotName::parse(foreign), None, "{foreign}");
    }
    let name = SnapshotName::parse("7-a-b").unwrap();
    assert!(name.is_meant_by("7-a-b") && name.is_meant_by("a-b"));
    assert!(!name.is_meant_by("7") && !name.is_meant_by("a") && !name.is_meant_by(""));
    assert_eq!(Tag::new(&"x".repeat(201)), Err(BadTag));
}
