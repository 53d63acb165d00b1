//! Java properties files: the form of password, access and rack files.

use super::error::ConfigError;
use std::collections::BTreeMap;

/// The largest accepted file.
pub const MAX_FILE_BYTES: usize = 16 << 20;

/// Reads a file: keys to values, the last of equal keys wins.
///
/// A key ends at the first `=`, `:` or blank that no backslash precedes; `#` and `!` begin a
/// comment line; a backslash at the end of a line continues it. Bytes are UTF-8 if they can be,
/// otherwise ISO-8859-1, which is what Java takes them for.
pub fn parse(bytes: &[u8]) -> Result<BTreeMap<String, String>, ConfigError> {
    if bytes.len() > MAX_FILE_BYTES {
        let text = format!("the file has more than {MAX_FILE_BYTES} bytes");
        return Err(ConfigError::startup(text));
    }
    let text = decode(bytes);
    let mut properties = BTreeMap::new();
    for (line, logical) in logical_lines(text.strip_prefix('\u{feff}').unwrap_or(&text)) {
        let (key, value) = split(&logical);
        properties.insert(unescape(key, line)?, unescape(value, line)?);
    }
    Ok(properties)
}

/// The text of a file.
pub fn decode(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// Lines with their continuations joined, without comments and blank lines, each with its number.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut logical: Vec<(usize, String)> = Vec::new();
    let mut continued = false;
    for (index, line) in text.split('\n').enumerate() {
        let line = line.trim_start_matches(is_blank);
        if !continued && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let backslashes = line.bytes().rev().take_while(|&b| b == b'\\').count();
        let goes_on = backslashes % 2 == 1;
        let content = if goes_on { line.strip_suffix('\\').unwrap_or(line) } else { line };
        match logical.last_mut() {
            Some((_, begun)) if continued => begun.push_str(content),
            _ => logical.push((index + 1, content.to_owned())),
        }
        continued = goes_on;
    }
    logical
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// Key and value of a logical line, escapes still in place.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c| {
        let ends = !escaped && (is_blank(c) || c == '=' || c == ':');
        escaped = c == '\\' && !escaped;
        ends
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start_matches(is_blank);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, rest.trim_start_matches(is_blank))
}

fn unescape(text: &str, line: usize) -> Result<String, ConfigError> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // Characters beyond the basic plane are written as two escapes, so units are collected first.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    let mut buffer = [0; 2];
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => match chars.next() {
                Some('u') => {
                    // The original says the same.
                    let text = format!("line {line}: Malformed \\uxxxx encoding.");
                    let malformed = ConfigError::startup(text);
                    let (digits, rest) =
                        chars.as_str().split_at_checked(4).ok_or(malformed.clone())?;
                    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                        return Err(malformed);
                    }
                    units.push(u16::from_str_radix(digits, 16).map_err(|_| malformed)?);
                    chars = rest.chars();
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some(other) => other,
                None => break,
            },
            plain => plain,
        };
        units.extend_from_slice(c.encode_utf16(&mut buffer));
    }
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> (String, String) {
        let map = parse(line.as_bytes()).unwrap();
        assert_eq!(map.len(), 1, "{line:?} is one property");
        map.into_iter().next().unwrap()
    }

    #[test]
    fn all_forms_of_a_property() {
        for (line, key, value) in [
            ("jsmith=havebadpass", "jsmith", "havebadpass"),
            ("  jsmith : havebadpass", "jsmith", "havebadpass"),
            ("jsmith havebadpass", "jsmith", "havebadpass"),
            ("jsmith\t=\thave bad pass ", "jsmith", "have bad pass "),
            ("Elvis\\ Presley=graceland4evar", "Elvis Presley", "graceland4evar"),
            ("a\\:b\\=c=d:e=f", "a:b=c", "d:e=f"),
            ("k=== v", "k", "== v"),
            ("alone", "alone", ""),
            ("=value", "", "value"),
            ("caf\\u00e9=\\u0041\\ud83d\\ude00", "café", "A😀"),
            ("p=C\\:\\\\dir\\tx", "p", "C:\\dir\tx"),
            ("long=one \\\n   two \\\r\n\tthree", "long", "one two three"),
            ("even=ends\\\\", "even", "ends\\"),
            ("last=open\\", "last", "open"),
            ("10.0.0.1\\:7000=DC1:RAC2", "10.0.0.1:7000", "DC1:RAC2"),
        ] {
            assert_eq!(one(line), (key.to_owned(), value.to_owned()), "{line:?}");
        }
    }

    #[test]
    fn comments_and_blank_lines_are_nothing() {
        let text = "# c\n! c\\\n\n   # c\nKeyspace1=jsmith,Elvis Presley\r\rlast=1\nlast=2";
        let map = parse(text.as_bytes()).unwrap();
        assert_eq!(map.get("Keyspace1").map(String::as_str), Some("jsmith,Elvis Presley"));
        assert_eq!(map.get("last").map(String::as_str), Some("2"));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_latin1() {
        assert_eq!(parse(b"u=\xe9").unwrap().get("u").map(String::as_str), Some("é"));
    }

    #[test]
    fn a_bad_unicode_escape_names_its_line() {
        for bad in ["a=1\nb=\\u12", "a=1\nb=\\u12zz", "a=1\nb=\\u+123", "a=1\nb=\\u12é"] {
            let error = parse(bad.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "line 2: Malformed \\uxxxx encoding.", "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_is_read_back(key in "\\PC{1,12}", value in "\\PC{0,12}") {
            let escape = |text: &str| {
                let units: Vec<_> =
                    text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
                units.concat()
            };
            let file = format!("{}={}", escape(&key), escape(&value));
            let map = parse(file.as_bytes()).unwrap();
            prop_assert_eq!(map.get(&key), Some(&value));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
