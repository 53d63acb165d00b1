//! Rights to look and to change something.
//!
//! Everybody who reaches the port may look. A change needs the token of `AdminToken`. Without one,
//! changes come over the loopback interface only. With one, `AdminTokenRequired` can exempt that
//! interface: a proxy there may send requests of others without a sign of it, so that it takes the
//! word of the operator that none does. Neither is meant for pages in a browser, which can
//! send requests to this machine as well:
//!
//! - A page of another origin says so in `Origin` or `Sec-Fetch-Site`: it may not change anything.
//! - Without asking first, a page can send a body only as a form or as plain text: changes by
//!   POST or PUT must say that they are JSON (see [`super::request`]). No request to ask first is
//!   ever granted, since there are no answers to OPTIONS.
//! - A page that makes its own name lead to this machine is of the same origin then, and could
//!   even read: over the loopback interface the host of a request must be a name of that
//!   interface.
//!
//! Rows of clients are shown to those who may change something here, and to clients that log in.

use crate::config::settings::AdminSettings;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use base64ct::{Base64, Encoding};
use std::hint::black_box;
use std::net::IpAddr;

/// Headers by which proxies show themselves.
const FORWARDED: [HeaderName; 4] = [
    HeaderName::from_static("forwarded"),
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("via"),
];
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Status and text of a refusal.
pub(super) type Refusal = (StatusCode, &'static str);

const FOREIGN_HOST: Refusal = (
    StatusCode::FORBIDDEN,
    "over the loopback interface the host of a request must be localhost or an address such as \
     127.0.0.1: name the server so, also in a proxy on this machine",
);
const FOREIGN_ORIGIN: Refusal =
    (StatusCode::FORBIDDEN, "pages of other servers may not change anything here, nor see rows");
const NO_TOKEN_CONFIGURED: Refusal = (
    StatusCode::FORBIDDEN,
    "changes need a token unless they come over the loopback interface, and this server has none: \
     set AdminToken in its storage-conf.xml",
);
const TOKEN_UNKNOWN: Refusal = (
    StatusCode::FORBIDDEN,
    "a token was sent, and this server has none: leave it out, or set AdminToken in its \
     storage-conf.xml",
);
const TOKEN_MISSING: Refusal =
    (StatusCode::UNAUTHORIZED, "changes need the token of AdminToken: send it as a Bearer token");
const TOKEN_WRONG: Refusal = (StatusCode::UNAUTHORIZED, "the token is not that of AdminToken");

const ROWS_REFUSED: Refusal = (
    StatusCode::UNAUTHORIZED,
    "rows are shown only with the token of AdminToken, as a Bearer token, or with a user name and \
     password that clients may log in with, as a Basic login: if this server has neither, set \
     AdminToken in its storage-conf.xml",
);

/// The answer to a token that is not looked at.
pub(super) const TOO_MANY_TOKENS: Refusal = (
    StatusCode::TOO_MANY_REQUESTS,
    "too many wrong tokens come from this address: try again later",
);

/// Sender of a request for rows.
#[derive(PartialEq, Eq)]
pub(super) enum Reader {
    /// Has the token of `AdminToken`.
    Token,
    /// Is on this machine, where changes need no token.
    Machine,
    /// Wants to log in as a client.
    Login { user: String, password: String },
}

/// Decides on a request for rows by its head. A login is not checked yet.
pub(super) fn reader(
    settings: &AdminSettings,
    peer: IpAddr,
    headers: &HeaderMap,
) -> Result<Reader, Refusal> {
    let authorization = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    if let Some(encoded) = authorization.and_then(|value| after_scheme(value, "Basic ")) {
        return login(encoded).ok_or(ROWS_REFUSED);
    }
    match may_change(settings, peer, headers) {
        Ok(()) if authorization.is_some() => Ok(Reader::Token),
        Ok(()) => Ok(Reader::Machine),
        Err(refusal) if refusal == TOKEN_WRONG || refusal == FOREIGN_ORIGIN => Err(refusal),
        Err(_) => Err(ROWS_REFUSED),
    }
}

/// The user name and password of a Basic login.
fn login(encoded: &[u8]) -> Option<Reader> {
    let encoded = str::from_utf8(encoded).ok()?;
    let text = String::from_utf8(Base64::decode_vec(encoded).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Reader::Login { user: user.to_owned(), password: password.to_owned() })
}

/// Decides on a request by its head.
pub(super) fn check(
    settings: &AdminSettings,
    peer: IpAddr,
    method: &Method,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    // A page can add the headers of a proxy, but not choose the host.
    if peer.to_canonical().is_loopback() && !names_loopback(headers) {
        return Err(FOREIGN_HOST);
    }
    if method == Method::GET || method == Method::HEAD {
        return Ok(());
    }
    may_change(settings, peer, headers)
}

fn may_change(settings: &AdminSettings, peer: IpAddr, headers: &HeaderMap) -> Result<(), Refusal> {
    // A proxy on this machine speaks for others.
    let is_forwarded = FORWARDED.iter().any(|name| headers.contains_key(name));
    let is_loopback = peer.to_canonical().is_loopback();
    if !is_same_origin(headers) {
        return Err(FOREIGN_ORIGIN);
    }
    match (headers.contains_key(AUTHORIZATION), &settings.token) {
        (false, _) if is_loopback && !is_forwarded && !settings.token_is_required => Ok(()),
        (true, None) if is_loopback && !is_forwarded => Err(TOKEN_UNKNOWN),
        (_, None) => Err(NO_TOKEN_CONFIGURED),
        (false, Some(_)) => Err(TOKEN_MISSING),
        (true, Some(_)) if judge_token(settings, headers) == Some(true) => Ok(()),
        (true, Some(_)) => Err(TOKEN_WRONG),
    }
}

/// Whether the token of a request is the right one; `None` if there is nothing to compare.
pub(super) fn judge_token(settings: &AdminSettings, headers: &HeaderMap) -> Option<bool> {
    let presented = after_scheme(headers.get(AUTHORIZATION)?.as_bytes(), "Bearer ")?;
    settings.token.as_ref().map(|token| is_equal(presented, token.as_bytes()))
}

/// Whether the host that the request is for is a name of the loopback interface. Clients of
/// HTTP/1.0 need not name one; browsers always do.
fn names_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let Some(host) = hosts.next() else { return true };
    let Some(name) = host.to_str().ok().and_then(host_name) else { return false };
    let is_loopback = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    is_loopback && hosts.next().is_none()
}

/// The host of `host:port`, an address of IPv6 without its brackets; `None` if it is neither.
fn host_name(authority: &str) -> Option<&str> {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let digits = if port.is_empty() { port } else { port.strip_prefix(':')? };
    digits.bytes().all(|digit| digit.is_ascii_digit()).then_some(name)
}

/// Whether no browser sends this for a page that came from elsewhere.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).map(|host| host.as_bytes());
    let is_own = |origin: &[u8]| {
        let authority = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
        authority.is_some() && authority == host
    };
    let says_so = |site: &[u8]| site == b"same-origin" || site == b"none";
    headers.get_all(ORIGIN).iter().all(|origin| is_own(origin.as_bytes()))
        && headers.get_all(SEC_FETCH_SITE).iter().all(|site| says_so(site.as_bytes()))
}

/// The credentials after a scheme such as `Bearer `.
fn after_scheme<'v>(value: &'v [u8], scheme: &str) -> Option<&'v [u8]> {
    let (named, credentials) = value.split_at_checked(scheme.len())?;
    named.eq_ignore_ascii_case(scheme.as_bytes()).then(|| credentials.trim_ascii())
}

/// Compares in a time that depends on what was presented, but not on how much of it is right.
fn is_equal(presented: &[u8], token: &[u8]) -> bool {
    let mut difference = presented.len() ^ token.len();
    for (at, byte) in presented.iter().enumerate() {
        let expected = token.get(at).copied().unwrap_or(!byte);
        difference = black_box(difference | usize::from(byte ^ expected));
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: [u8; 4] = [127, 0, 0, 1];
    const REMOTE: [u8; 4] = [10, 1, 2, 3];

    fn settings(token: Option<&str>, token_is_required: bool) -> AdminSettings {
        let token = token.map(str::to_owned);
        let address = LOCAL.into();
        AdminSettings {
            address,
            port: 0,
            port_is_required: false,
            token,
            token_is_required,
            log_levels: None,
            log_file: None,
            slow_requests: None,
        }
    }

    fn check(
        token: Option<&str>,
        peer: impl Into<IpAddr>,
        method: &Method,
        headers: &[(&'static str, &'static str)],
    ) -> Result<(), Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        // The word of the operator that no proxy is on this machine.
        super::check(&settings(token, false), peer.into(), method, &map)
    }

    #[test]
    fn changes_from_this_machine_may_need_the_token() {
        let settings = settings(Some("secret"), true);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "127.0.0.1:8080".parse().unwrap());
        let check =
            |headers: &HeaderMap, method| super::check(&settings, LOCAL.into(), method, headers);
        assert_eq!(check(&headers, &Method::POST), Err(TOKEN_MISSING));
        assert_eq!(check(&headers, &Method::GET), Ok(()));
        headers.insert(AUTHORIZATION, "Bearer secret".parse().unwrap());
        assert_eq!(check(&headers, &Method::POST), Ok(()));
    }

    #[test]
    fn changes_from_other_machines_need_the_token() {
        let from = |token, peer: [u8; 4], authorization: Option<&'static str>| {
            let host = ("host", "127.0.0.1:8080");
            let headers: Vec<_> =
                [host].into_iter().chain(authorization.map(|a| ("authorization", a))).collect();
            check(token, peer, &Method::POST, &headers)
        };
        assert_eq!(from(None, LOCAL, None), Ok(()));
        assert_eq!(from(Some("secret"), LOCAL, None), Ok(()));
        assert_eq!(from(Some("secret"), LOCAL, Some("Bearer other")), Err(TOKEN_WRONG));
        assert_eq!(from(None, REMOTE, None), Err(NO_TOKEN_CONFIGURED));
        assert_eq!(from(None, REMOTE, Some("Bearer ")), Err(NO_TOKEN_CONFIGURED));
        assert_eq!(from(Some("secret"), REMOTE, None), Err(TOKEN_MISSING));
        for wrong in ["Bearer secre", "Bearer secrets", "Bearer ", "secret", "Basic secret", "B"] {
            assert_eq!(from(Some("secret"), REMOTE, Some(wrong)), Err(TOKEN_WRONG));
        }
        assert_eq!(from(Some("secret"), REMOTE, Some("Bearer secret")), Ok(()));
        assert_eq!(from(Some("secret"), REMOTE, Some("bearer  secret ")), Ok(()));
    }

    #[test]
    fn whoever_reaches_the_port_may_look() {
        assert_eq!(check(Some("secret"), REMOTE, &Method::GET, &[("host", "node1:8080")]), Ok(()));
        assert_eq!(check(None, REMOTE, &Method::HEAD, &[]), Ok(()));
    }

    #[test]
    fn over_loopback_only_names_of_loopback_are_served() {
        let get = |host: &'static str| check(None, LOCAL, &Method::GET, &[("host", host)]);
        for host in ["localhost", "LocalHost:8080", "127.0.0.1:1", "127.9.9.9", "[::1]:8080"] {
            assert_eq!(get(host), Ok(()), "{host}");
        }
        for host in ["evil.example:8080", "localhost.evil.example", "10.0.0.1", "[::2]:1", ""] {
            assert_eq!(get(host), Err(FOREIGN_HOST), "{host}");
        }
        for host in ["[::1]evil.example", "[::1", "localhost:80@evil", "localhost:80:80"] {
            assert_eq!(get(host), Err(FOREIGN_HOST), "{host}");
        }
        assert_eq!(check(None, LOCAL, &Method::GET, &[]), Ok(()));
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(check(None, LOCAL, &Method::GET, &two), Err(FOREIGN_HOST));
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let foreign = check(None, mapped, &Method::GET, &[("host", "evil.example")]);
        assert_eq!(foreign, Err(FOREIGN_HOST));
    }

    #[test]
    fn pages_of_other_servers_change_nothing() {
        let post = |headers: &[(&'static str, &'static str)]| {
            let host = [("host", "localhost:8080")];
            check(None, LOCAL, &Method::DELETE, &[&host, headers].concat())
        };
        assert_eq!(post(&[("origin", "http://localhost:8080")]), Ok(()));
        assert_eq!(post(&[("sec-fetch-site", "same-origin")]), Ok(()));
        for origin in ["http://evil.example", "http://localhost:80", "null", "localhost:8080", ""] {
            assert_eq!(post(&[("origin", origin)]), Err(FOREIGN_ORIGIN), "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert_eq!(post(&[("sec-fetch-site", site)]), Err(FOREIGN_ORIGIN));
        }
    }

    #[test]
    fn what_a_proxy_passes_on_is_of_another_machine() {
        for header in ["x-forwarded-for", "forwarded", "x-real-ip", "via"] {
            let headers = [("host", "admin.example"), (header, "10.0.0.1")];
            let foreign = check(Some("secret"), LOCAL, &Method::GET, &headers);
            assert_eq!(foreign, Err(FOREIGN_HOST), "a page can add {header}");
            let headers = [("host", "127.0.0.1:8080"), (header, "10.0.0.1")];
            assert_eq!(check(None, LOCAL, &Method::GET, &headers), Ok(()));
            let refused = check(Some("secret"), LOCAL, &Method::PUT, &headers);
            assert_eq!(refused, Err(TOKEN_MISSING));
        }
    }

    #[test]
    fn rows_are_for_operators_and_logins() {
        let reader = |settings: &AdminSettings, peer: [u8; 4], headers: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().unwrap());
            }
            super::reader(settings, peer.into(), &map)
        };
        let (without, trusting) = (settings(None, false), settings(Some("secret"), false));
        let strict = settings(Some("secret"), true);
        let bearer = ("authorization", "Bearer secret");
        assert!(reader(&without, LOCAL, &[]) == Ok(Reader::Machine));
        assert!(reader(&trusting, LOCAL, &[]) == Ok(Reader::Machine));
        for (settings, peer) in [(&strict, LOCAL), (&strict, REMOTE), (&trusting, REMOTE)] {
            assert!(reader(settings, peer, &[]) == Err(ROWS_REFUSED));
            assert!(reader(settings, peer, &[bearer]) == Ok(Reader::Token));
            let wrong = ("authorization", "Bearer secrets");
            assert!(reader(settings, peer, &[wrong]) == Err(TOKEN_WRONG));
        }
        assert!(reader(&without, REMOTE, &[]) == Err(ROWS_REFUSED));
        assert!(reader(&without, REMOTE, &[bearer]) == Err(ROWS_REFUSED));
        assert!(reader(&without, LOCAL, &[("via", "proxy")]) == Err(ROWS_REFUSED));
        let foreign = ("sec-fetch-site", "cross-site");
        assert!(reader(&without, LOCAL, &[foreign]) == Err(FOREIGN_ORIGIN));
        // A colon may be part of a password.
        let basic = |text: &str| format!("basic {}", Base64::encode_string(text.as_bytes()));
        let login = Reader::Login { user: "ann".to_owned(), password: "a:b".to_owned() };
        assert!(reader(&strict, REMOTE, &[("authorization", &basic("ann:a:b"))]) == Ok(login));
        for wrong in [basic("ann"), "Basic ?".to_owned(), "Basic".to_owned()] {
            let refused = reader(&strict, REMOTE, &[("authorization", &wrong)]);
            assert!(refused.is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_token_is_not_shown() {
        assert!(!format!("{:?}", settings(Some("secret"), true)).contains("secret"));
    }
}
