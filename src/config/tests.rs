//! Files as a whole. Golden scripts in tests/scripts/config hold settings, notes and faults of the
//! samples.

use crate::config::settings::{CacheSize, Release};
use crate::config::*;
use crate::model::comparator::{Comparator, ComparatorRegistry};
use proptest::prelude::*;

const SAMPLE: &str = include_str!("../../storage-conf.xml");
const OF_04: &str = include_str!("../../tests/configs/0.4.xml");
const OF_05: &str = include_str!("../../tests/configs/0.5.xml");
const OF_06: &str = include_str!("../../tests/configs/0.6.xml");

fn parse(text: &str) -> Result<Loaded, ConfigErrors> {
    Loader::for_tools(&ComparatorRegistry::default()).parse(text, "test.xml")
}

#[test]
fn the_token_is_never_shown() {
    let shown = |elements: &str, expected: &str| {
        let loaded = parse(&OF_06.replace("</Storage>", &format!("{elements}</Storage>"))).unwrap();
        let settings = &loaded.settings;
        let end = format!("{expected}</Storage>");
        assert_eq!(settings.text, OF_06.replace("</Storage>", &end));
        assert!(!format!("{}{settings:?}", describe(&loaded)).contains("s3cret"));
        settings.admin.token.clone()
    };
    let token = shown("<AdminToken a='/>'>s3cret</AdminToken>", "<AdminToken></AdminToken>");
    assert_eq!(token.as_deref(), Some("s3cret"));
    let token = "<AdminToken><![CDATA[s3cret</AdminToken>]]></AdminToken >";
    shown(token, "<AdminToken></AdminToken >");
    // Misspelt ones.
    shown("<admin_token>s3cret</admin_token>", "<admin_token></admin_token>");
    shown("<AdminTokn a='s3cret' b = \"s3cret>\">s3cret</AdminTokn>", "<AdminTokn></AdminTokn>");
    shown("<Tokn><Seed>s3cret</Seed><a/></Tokn>", "<Tokn></Tokn>");
    shown("<Tokn a=\"s3cret\"/>", "<Tokn/>");
    let seeds = "<Seeds a = '=' my-token = 's3cret' Password=\"s3cret>\"/>";
    shown(seeds, "<Seeds a = '=' my-token = '' Password=\"\"/>");
    // Comments.
    shown(
        "<!-- <AdminToken> above --><Seeds/><!-- AdminToken: s3cret -->",
        "<!-- --><Seeds/><!-- -->",
    );
    shown("<!-- <My-Password>s3cret -->", "<!-- -->");
    shown("<!-- the initial token=\"5 -->", "<!-- the initial token=\"5 -->");
}

#[test]
fn only_a_file_can_require_its_cql_port() {
    let comparators = ComparatorRegistry::default();
    let cql = |path| Loader::for_tools(&comparators).load(path).unwrap().settings.cql.unwrap();
    let file = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/storage-conf.xml"));
    let (built_in, of_file) = (cql(None), cql(Some(file)));
    assert_eq!((built_in.port, of_file.port), (9042, 9042));
    assert!(!built_in.port_is_required && of_file.port_is_required);
    assert_eq!(parse(OF_06).unwrap().settings.cql, None);
}

#[test]
fn clients_see_the_comparator_that_their_release_had_for_the_system_keyspace() {
    for (text, comparator) in [(OF_05, Comparator::Utf8), (OF_06, Comparator::Bytes)] {
        let families = parse(text).unwrap().settings.system_column_families();
        assert_eq!(families.len(), 4);
        assert_eq!(families[0].schema.comparator(), &comparator);
    }
}

#[test]
fn labels_without_a_word_in_the_file_have_the_usual_one() {
    let settings = parse(OF_04).unwrap().settings;
    let events = settings.keyspace("Labelled").unwrap().column_family("Events").unwrap();
    let words = ["RowKey", "ColumnKey", "ColumnMap"].map(|element| events.labels.word(element));
    assert_eq!(words, ["UserName", "When", "COLUMN_MAP"]);
}

#[test]
fn a_cache_size_stands_for_a_number_of_entries() {
    assert_eq!(CacheSize::Fraction(0.01).entries(10), 1);
    assert_eq!(CacheSize::Fraction(0.5).entries(10), 5);
    assert_eq!((CacheSize::Entries(7).entries(1), CacheSize::Off.entries(9)), (7, 0));
    assert_eq!(CacheSize::Fraction(0.07).to_string(), "7%");
}

#[test]
fn the_original_reads_the_embedded_configuration() {
    let loaded = Loader::for_server(&ComparatorRegistry::default()).load(None).unwrap();
    assert_eq!((loaded.settings.release, loaded.settings.text.as_str()), (Release::V06, SAMPLE));
    // Its parser refuses a double hyphen in a comment.
    let mut reader = quick_xml::Reader::from_str(SAMPLE);
    reader.config_mut().enable_all_checks(true);
    while !matches!(reader.read_event().unwrap(), quick_xml::events::Event::Eof) {}
}

#[test]
fn files_and_directories_are_found() {
    let registry = ComparatorRegistry::default();
    let directory = tempfile::tempdir().unwrap();
    let load = |path| Loader::for_server(&registry).load(Some(path));
    let missing = load(directory.path()).unwrap_err().errors.remove(0);
    assert_eq!((missing.exit_code(), missing.line()), (3, None));
    let text =
        "Cannot locate storage-conf.xml via storage-config system property or classpath lookup.";
    assert!(missing.to_string().ends_with(text));
    let file = directory.path().join(FILE_NAME);
    std::fs::write(
        &file,
        SAMPLE
            .replace("UTF-8", "ISO-8859-1")
            .replace("Test Cluster", "Caf\u{e9}")
            .chars()
            .map(|c| u8::try_from(u32::from(c)).unwrap())
            .collect::<Vec<u8>>(),
    )
    .unwrap();
    for path in [directory.path(), file.as_path()] {
        let loaded = load(path).unwrap();
        assert_eq!(loaded.settings.cluster_name, "Café");
        assert_eq!(loaded.settings.origin, file.display().to_string());
    }
    std::fs::write(&file, b"\xff\xfe").unwrap();
    let error = load(&file).unwrap_err().errors.remove(0);
    assert_eq!((error.exit_code(), error.line()), (3, Some(1)));
}

#[test]
fn each_class_of_failure_has_its_lines_and_exit_code() {
    for (class, exit_code, line) in [
        (FailureClass::BadConfiguration, 1, "Bad configuration; unable to start server"),
        (
            FailureClass::UnknownHost,
            2,
            "Unable to start with unknown hosts configured.  Use IP addresses instead of \
             hostnames.",
        ),
        (FailureClass::Startup, 3, "Exception encountered during startup."),
    ] {
        assert_eq!((class.exit_code(), class.stderr_line()), (exit_code, line));
    }
    let first = |text: &str| parse(text).unwrap_err().errors.remove(0).log_line();
    assert!(first(&OF_06.replace(">12<", ">4<")).starts_with("Fatal error: test.xml:"));
    let root = "Exception encountered during startup. test.xml:1: /Config: the root element must \
                be <Storage>";
    assert_eq!(first("<Config/>"), root);
    // The errors of a file are shown in the order of its lines.
    let two = OF_06.replace(">12<", ">4<").replace(">batch<", ">sometimes<");
    let errors = parse(&two).unwrap_err();
    assert!(errors.errors[0].line() > errors.errors[1].line());
    assert!(errors.by_line().is_sorted_by_key(|error| error.line()));
}

#[test]
fn the_errors_of_a_file_are_bounded() {
    let families: String =
        (0..500).map(|i| ["<ColumnFamily Name='a-", &i.to_string(), "'/>"].concat()).collect();
    let errors = parse(&OF_06.replacen("</Keyspace>", &format!("{families}</Keyspace>"), 1));
    let errors = errors.unwrap_err();
    assert_eq!(errors.errors.len(), 100);
    assert!(errors.notes.iter().any(|note| note.text.contains("only 100 errors")));
}

#[test]
fn the_description_shows_every_setting() {
    let text = describe(&parse(OF_05).unwrap());
    // Every setting below /Storage, either with a periodic or with a batch log.
    let batch = OF_05.replace(">periodic<", ">batch<");
    let batch = batch.replace("CommitLogSyncPeriodInMS>", "CommitLogSyncBatchWindowInMS>");
    let text = text + &describe(&parse(&batch).unwrap());
    let elsewhere = ["Keyspaces", "ReplicaPlacementStrategy", "ReplicationFactor"];
    for row in elements::ROWS.iter() {
        let is_shown =
            row.is_setting() && !row.path.contains('/') && !elsewhere.contains(&row.path);
        if is_shown {
            assert!(text.contains(&format!("  {} = ", row.path)), "{} is not shown", row.path);
        }
    }
}

#[test]
fn a_large_file_takes_no_longer_than_its_length() {
    let repeat = |entry: fn(usize) -> String, count| (0..count).map(entry).collect::<String>();
    let families = repeat(|i| format!("<ColumnFamily Name='{i}'/>"), 20_000);
    let keyspaces = repeat(|i| format!("<Keyspace Name='{i}'/>"), 20_000);
    let text = OF_05.replace("</Keyspaces>", &format!("{keyspaces}</Keyspaces>"));
    let text = text.replacen("</Keyspace>", &format!("{families}</Keyspace>"), 1);
    let loaded = parse(&text).unwrap();
    assert_eq!(loaded.settings.keyspaces.len(), 20_002);
    assert_eq!(loaded.settings.keyspace("Radio").unwrap().column_families.len(), 20_001);
    let seeds = repeat(|_| "<Seed>192.0.2.1</Seed>".to_owned(), 1001);
    let error = parse(&OF_06.replace("<Seeds>", &format!("<Seeds>{seeds}"))).unwrap_err();
    assert!(error.to_string().contains("more than 1000 entries"));
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let sample = prop_oneof![Just(OF_04), Just(OF_05), Just(OF_06), Just(SAMPLE)];
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..8),
        "[<>&;/='\"!\\-\\[\\]a-zA-Z0-9%. ]{0,12}".prop_map(String::into_bytes),
        Just(b"<ThriftPort>".to_vec()),
        Just(b"</Storage>".to_vec()),
        Just("\u{fffd}é".as_bytes().to_vec()),
    ];
    let edits = proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..40, piece), 0..6);
    (sample, edits).prop_map(|(sample, edits)| {
        let mut bytes = sample.as_bytes().to_vec();
        for (index, removed, inserted) in edits {
            let start = index.index(bytes.len() + 1);
            let end = (start + removed).min(bytes.len());
            bytes.splice(start..end, inserted);
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_file_makes_the_reader_panic(bytes in mutated()) {
        if let Ok(text) = xml::decode(&bytes, "x") {
            match parse(&text) {
                Ok(loaded) => prop_assert!(!describe(&loaded).is_empty()),
                Err(error) => prop_assert!((1..=3).contains(&error.exit_code()), "{}", error),
            }
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(text) = xml::decode(&bytes, "x") {
            prop_assert!(parse(&text).is_err());
        }
    }
}
